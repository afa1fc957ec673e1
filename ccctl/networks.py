"""The network that `--network` means: a family such as ``mesh:10x10``, or a profile or topology file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ccctl import artifacts
from ccctl.errors import UsageError
from ccctl.sizes import parse_rates, parse_seconds

if TYPE_CHECKING:
    from synth.network import Network

__all__ = ["load_network"]


def load_network(
    spec: str, alpha: str | None, bandwidth: str | None, *, hold_alpha: bool = False
) -> tuple[Network, dict[str, str]]:
    """(network, digests of the artifacts it came from).

    Raises UsageError where ``spec`` is neither, or where ``alpha`` and ``bandwidth`` are missing for
    a family or given for a file that has its own.
    """
    from synth.families import family, names

    if spec.partition(":")[0] in names() and not Path(spec).exists():
        if bandwidth is None:
            raise UsageError(
                f"--network {spec}: a family needs the bandwidth of its links",
                hint="Add --bandwidth 50GB/s, and --alpha 0.5us unless it is 0.",
            )
        alphas = tuple(parse_seconds(part, "--alpha") for part in (alpha or "0").split(","))
        return family(spec, alphas, parse_rates(bandwidth, "--bandwidth"), hold_alpha=hold_alpha), {}
    if spec != "-" and not Path(spec).exists() and ("/" not in spec and "." not in spec):
        raise UsageError(
            f"--network {spec}: neither a file nor a family of networks",
            hint=f"families: {', '.join(names())}, such as mesh:4x4; or profile.json",
        )
    if alpha is not None or bandwidth is not None:
        raise UsageError("--alpha and --bandwidth are for families; a file has its own costs")
    return _from_artifact(spec, hold_alpha)


def _from_artifact(path: str, hold_alpha: bool) -> tuple[Network, dict[str, str]]:
    from synth.measured import from_profile
    from synth.nominal import from_topology

    artifact = artifacts.read(path, "profile", "topology", "schedule")
    name = Path(path).name if path != "-" else artifact.kind
    digests = {artifact.kind: artifact.sha256}
    if artifact.kind == "profile":
        return from_profile(artifact.body, name, hold_alpha=hold_alpha), digests
    if artifact.kind == "topology":
        return from_topology(artifact.body, name, hold_alpha=hold_alpha), digests
    network: Network = artifact.body.network
    return network, digests
