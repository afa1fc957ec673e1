"""The network that `--network` names, without the parts that have failed.

`--network` takes a family such as ``mesh:10x10``, a machine such as ``dgx-a100:2``, a list of links
(``links.csv``), a profile, topology or schedule artifact, or what `detect` reads: XML of NCCL or hwloc,
matrices of nvidia-smi, a recording.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from ccctl import console
from ccctl.arguments.options import MOST_RANKS
from ccctl.arguments.topologies import LINK_LISTS, read_or_described, topology_in
from ccctl.artifacts import exists, read_input
from ccctl.completion import words
from ccctl.errors import DataError, UsageError
from exec.launcher import fold, nodeset
from probes.base import nearest, parse_rates, parse_seconds, plural, quoted, whole
from synth.schedules import SCHEDULE_KINDS

if TYPE_CHECKING:
    from exec.benchmark import Report
    from probes.topology import Topology
    from synth.network import Network

__all__ = ["load_network", "network_of", "parse_racks", "parse_ranks"]

_RANKS = re.compile(r"[0-9,\s-]+")
# A name of a network, known or not: b200, b200/8x400:4, torus:4x4, b200:64/rail/2. Other text is a path.
_LIKE_A_NAME = re.compile(r"[^/.:]+(/[0-9]+x[0-9.]+)?(:[^/.]*(/(rail|ring))?(/[0-9]+)?)?")


def load_network(
    spec: str,
    alpha: str | None,
    bandwidth: str | None,
    *,
    hold_alpha: bool = False,
    unwind: str | None = None,
    failed: str | None = None,
    topology: str | None = None,
) -> tuple[Network, dict[str, str]]:
    """Return (network without what ``failed``, digests of the artifacts it came from).

    The links of a profile share the ports that the file ``topology`` declares. Raises UsageError if ``spec``
    names no network, if a family has no ``bandwidth``, or if ``alpha``, ``bandwidth`` or ``unwind`` is given
    for a network with costs of its own. Raises DataError if the network is inconsistent, for example in the
    costs of its links.
    """
    network, digests = _whole(spec, alpha, bandwidth, hold_alpha, unwind)
    if topology is not None:
        network, declared = _with_topology(network, digests, spec, topology)
        digests |= declared
    # A topology or a profile may hold a rate with which no schedule can be timed.
    if problems := network.problems():
        raise DataError(spec, [f"the network that it describes: {problem}" for problem in problems])
    if failed is None:
        return network, digests
    from synth.networks import failures_of, without

    return without(network, failures_of(failed, network)), digests


def _with_topology(
    network: Network, digests: dict[str, str], spec: str, path: str
) -> tuple[Network, dict[str, str]]:
    """Return (the network of the profile ``spec`` with the ports of a topology, the topology's digest)."""
    from ccctl.artifacts import codec
    from synth.networks import with_declared_ports

    if set(digests) != {"profile"} or spec == "-":
        raise UsageError(
            f"--topology: {spec} is not the file of a profile; a topology adds ports to measured links only",
            hint="A topology alone is a network, too: --network FILE.",
        )
    artifact = read_or_described(path, "topology")
    profile = codec.read(spec, "profile").body
    devices = [rank.device for rank in profile.ranks]
    return with_declared_ports(network, devices, artifact.body), {"topology": artifact.sha256}


def _whole(
    spec: str, alpha: str | None, bandwidth: str | None, hold_alpha: bool, unwind: str | None
) -> tuple[Network, dict[str, str]]:
    from synth.networks import is_family, is_pod, pod

    there = exists(spec)
    if is_family(spec) and not there:
        return _family(spec, alpha, bandwidth, hold_alpha, unwind), {}
    named = is_pod(spec) and not there
    if not named and spec != "-" and not there and _LIKE_A_NAME.fullmatch(spec):
        raise _unknown(spec)
    if not named and spec != "-" and not there:
        read_input(spec)  # raises the error for a missing file
    given = {"--alpha": alpha, "--bandwidth": bandwidth, "--unwind": unwind}
    if any(value is not None for value in given.values()):
        wrong = " and ".join(name for name, value in given.items() if value is not None)
        raise UsageError(f"{wrong}: only for families; {spec} has links and costs of its own")
    if named:
        return pod(spec, hold_alpha=hold_alpha), {}
    if spec.endswith(LINK_LISTS):
        from synth.networks import read_link_list

        return read_link_list(spec, hold_alpha=hold_alpha), {}
    return _from_artifact(spec, hold_alpha)


def _unknown(spec: str) -> UsageError:
    """Return the error for a name that no network has, with the nearest one and what to type instead."""
    from synth.networks import is_family, names, pod_aliases, pod_names

    name, _, shape = spec.partition(":")
    head, _, nics = name.partition("/")
    # A known name that contains ``head``, such as h100 or gb200, is nearer than a name of equal length.
    holding = [known for known in pod_names() if len(head) > 2 and head.lower() in known]
    close = holding[0] if holding else nearest(head, (*names(), *pod_names(), *pod_aliases()))
    if close is None:
        hint = (
            f"families: {', '.join(names())}, such as mesh:4x4; machines: {', '.join(pod_names())}, "
            "such as dgx-a100:2 or dgx-h100:64/rail; or profile.json, links.csv, nccl-topo.xml"
        )
    else:
        example = f"{close}/{nics}" if nics and not is_family(close) else close
        example += f":{shape or words.SHAPES[close][0]}" if is_family(close) else f":{shape}" if shape else ""
        costs = " --bandwidth 50GB/s" if is_family(close) else ""
        hint = f"did you mean {close!r}? Type {example}{costs}"
    return UsageError(f"{quoted(spec)}: neither a file nor a network that has a name", hint=hint)


def _family(
    spec: str, alpha: str | None, bandwidth: str | None, hold_alpha: bool, unwind: str | None
) -> Network:
    from synth.networks import family

    if bandwidth is None:
        raise UsageError(
            f"{spec}: a network of this family needs the bandwidth of its links",
            hint="Add --bandwidth 50GB/s, and --alpha 0.5us unless it is 0.",
        )
    alphas = tuple(parse_seconds(part, "--alpha") for part in (alpha or "0").split(","))
    degrees = _degrees(unwind) if unwind is not None else ()
    rates = parse_rates(bandwidth, "--bandwidth")
    return family(spec, alphas, rates, hold_alpha=hold_alpha, unwind=degrees)


def _degrees(text: str) -> tuple[int, ...]:
    degrees = [MOST_RANKS if part == "max" else whole(part, 1, MOST_RANKS) for part in text.split(",")]
    if None in degrees:
        raise UsageError(
            f"--unwind: expected a degree or max, or one for each switch such as max,1, found {quoted(text)}"
        )
    return tuple(degree for degree in degrees if degree is not None)


def _from_artifact(path: str, hold_alpha: bool) -> tuple[Network, dict[str, str]]:
    from synth.networks import from_profile, from_topology

    artifact = read_or_described(path, "profile", "topology", *SCHEDULE_KINDS)
    name = Path(path).name if path != "-" else artifact.kind
    digests = {artifact.kind: artifact.sha256}
    if artifact.kind == "profile":
        return from_profile(artifact.body, name, hold_alpha=hold_alpha), digests
    if artifact.kind == "topology":
        network = from_topology(artifact.body, name, hold_alpha=hold_alpha)
        _tell_unknown_links(artifact.body, path)
        return network, digests
    return artifact.body.listed_network(), digests


def _tell_unknown_links(topology: Topology, path: str) -> None:
    """Warn of hosts whose NVLinks no source reports, and suggest the network of a machine."""
    from probes.detection import unknown_nvlinks
    from synth.networks import pods_of

    doubtful = [(host, found) for host in topology.hosts if (found := unknown_nvlinks(host)) is not None]
    if not doubtful:
        return
    machines = {
        name
        for host, _ in doubtful
        for name in pods_of(len(host.usable_gpus), next((gpu.name for gpu in host.usable_gpus), ""))
    }
    alike = sorted(machines) if len(doubtful) == len(topology.hosts) else []
    instead = f"; or use --network {alike[0]}:{len(doubtful)}" if alike else ""
    hosts = fold(host.name for host, _ in doubtful)
    console.doubt(f"{path}: {hosts}: {doubtful[0][1].text}{instead}")


def network_of(
    report: Report,
    spec: str | None,
    alpha: str | None = None,
    bandwidth: str | None = None,
    *,
    unwind: str | None = None,
    failed: str | None = None,
) -> Network:
    """Return the network of the report's ranks; a machine or topology of one host is repeated for each host.

    Without ``spec``, the network is the named machine with the report's GPUs, if the report is of one host.
    Raises UsageError if no such machine is known or the network does not fit the report, and the errors of
    ``load_network``.
    """
    from exec.benchmark import fitted
    from synth.networks import hosts_named, is_pod, trays_of

    hosts = len(report.hosts)
    if spec is None:
        spec = _guessed(report)
    if is_pod(spec) and not exists(spec) and hosts_named(spec) is None:
        # The hosts of an NVLink domain such as NVL72 are its trays.
        machines = -(-hosts // trays_of(spec))
        spec = f"{spec}:{machines}" if machines > 1 else spec
    found = _repeated(spec, hosts) if failed is None and exists(spec) else None
    if found is None:
        found, _ = load_network(spec, alpha, bandwidth, unwind=unwind, failed=failed)
    if found.ranks != report.ranks:
        note = f"{spec} has {found.ranks} ranks, the report {report.ranks}: taken for the first of each host"
        found = fitted(found, report)
        console.note(note)
    return found


def _guessed(report: Report) -> str:
    from synth.networks import pods_of

    model = report.machine.get("gpu", "")
    each = report.ranks // max(1, len(report.hosts))
    # No named machine has GPUs joined by PCIe or by NVLink bridges.
    known = [
        name
        for gpus in (8, 16)
        if each <= gpus and "pcie" not in model.lower()
        for name in pods_of(gpus, model)
    ]
    what = f"{plural(report.ranks, 'rank')} on {plural(len(report.hosts), 'host')}"
    if not known or len(report.hosts) > 1:
        likely = known[0] if known else "dgx-a100"
        example = f"{likely}:{len(report.hosts)}" if len(report.hosts) > 1 else likely
        raise UsageError(
            f"the report is of {what}{f', {model}' if model else ''}: expected --network, to connect them",
            hint=f"For example --network {example}, {likely}/4x200 with 4 NICs of 200 Gbit/s a host, "
            "system.xml (NCCL_TOPO_DUMP_FILE), profile.json, or switch:8 --bandwidth 25GB/s.",
        )
    console.note(f"{what}, {model}: taken for {known[0]}")
    return known[0]


def _repeated(path: str, hosts: int) -> Network | None:
    """Return the network of a one-host topology repeated on ``hosts`` > 1 hosts, otherwise None."""
    from probes.detection import side_by_side
    from synth.networks import from_topology

    topology = topology_in(path) if hosts > 1 else None
    if topology is None or len(topology.hosts) > 1:
        return None
    _tell_unknown_links(topology, path)
    return from_topology(side_by_side([topology] * hosts), Path(path).name)


def parse_ranks(text: str, option: str = "--ranks") -> tuple[int, ...]:
    """Return the ranks in ``0,2,4-7``, ascending; raise UsageError that names ``option``."""
    found: set[int] = set()
    for part in text.split(","):
        low, dash, high = (word.strip() for word in part.partition("-"))
        first = whole(low, 0, MOST_RANKS - 1)
        last = whole(high, 0, MOST_RANKS - 1) if dash else first
        if first is None or last is None or last < first:
            raise UsageError(
                f"{option}: expected ranks below {MOST_RANKS} such as 0,2,4-7, found {quoted(text)}"
            )
        found.update(range(first, last + 1))
    return tuple(sorted(found))


def parse_racks(text: str, network: Network) -> tuple[tuple[int, ...], ...]:
    """Return the ranks of each rack; racks are ranks, ``0-3/4-7``, or hosts, ``gpu[1-4]/gpu[5-8]``.

    Raises UsageError unless every rank of ``network`` is in exactly one rack.
    """
    racks = tuple(_rack(part, network) for part in text.split("/"))
    seen: dict[int, int] = {}
    for number, rack in enumerate(racks):
        for rank in rack:
            if rank >= network.ranks:
                raise UsageError(f"--racks: there is no rank {rank}; the network has {network.ranks}")
            if seen.setdefault(rank, number) != number:
                raise UsageError(f"--racks: rank {rank} is in racks {seen[rank]} and {number}")
    if left := [rank for rank in range(network.ranks) if rank not in seen]:
        raise UsageError(f"--racks: expected every rank in a rack, found rank {left[0]} in none")
    return racks


def _rack(part: str, network: Network) -> tuple[int, ...]:
    if _RANKS.fullmatch(part):
        return parse_ranks(part, "--racks")
    try:
        hosts = {entry.host for entry in nodeset.parse(part)}
    except UsageError as error:
        raise UsageError(f"--racks: {error.message}", hint="Write 0-3/4-7, or gpu[1-4]/gpu[5-8].") from error
    found = tuple(rank for rank, host in enumerate(network.hosts) if host in hosts)
    if unknown := sorted(hosts - set(network.hosts)):
        raise UsageError(f"--racks: there is no host {quoted(unknown[0])} in the network")
    return found
