"""`ccctl profile`: what each link costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccctl import artifacts, console
from ccctl.launch import World, run_ranks
from ccctl.options import Hostfile, Hosts, Json, Output, Quiet, Ranks, TimeoutSeconds, Verbose

if TYPE_CHECKING:
    from probes.profile import Profile

__all__ = ["EXAMPLES", "profile"]

EXAMPLES = (
    ("ccctl profile -n 4 -o profile.json", "measure the links between four ranks of this host"),
    ("ccctl profile -n 4 --quick --json", "a quick look, as one object"),
    ("ccctl profile -n 4 -o - | ccctl show -", "draw the matrices without writing a file"),
)


def profile(
    ranks: Ranks = None,
    hosts: Hosts = None,
    hostfile: Hostfile = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer passes; over 8 ranks only strides 1, 2, 4, …")
    ] = False,
    json: Json = False,
    output: Output = None,
    timeout: TimeoutSeconds = None,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Measure alpha and beta of every directed link between ranks.

    Starts the ranks over MPI, or is one of them inside mpirun or srun. Alpha (time in flight) comes
    from ping-pong, beta (seconds per byte) from the spacing of message trains at the receiver.
    """
    from probes.measure import Effort

    found: Profile = run_ranks(
        "probes.measure:measure_task",
        Effort(quick=quick),
        World(ranks, hosts, hostfile),
        label="profile",
        timeout_s=timeout,
    )
    if output is not None:
        artifacts.write(output, "profile", found)
    if json and output != "-":
        console.summary(_summary(found))
    elif output is None:
        from ccctl.pictures.profile import draw

        draw(found)
    elif output != "-":
        _say(found, output)
    console.next_step(f"ccctl synth --network {_file(output)} --collective all_reduce")


def _file(output: str | None) -> str:
    return output if output not in (None, "-") else "profile.json"


def _say(found: Profile, output: str) -> None:
    from ccctl.pictures.profile import range_of

    least, middle, most = range_of(1e-9 / found.links.beta_s_per_byte)
    console.note(
        f"{output}: {len(found.links.src)} links between {len(found.ranks)} ranks, "
        f"{least} to {most} GB/s, median {middle} GB/s, measured in {found.seconds:.1f} s"
    )
    for finding in found.findings:
        console.note(f"finding: {finding}")


def _summary(found: Profile) -> dict[str, Any]:
    import numpy as np

    bandwidth_gbs = 1e-9 / found.links.beta_s_per_byte
    alpha_us = 1e6 * found.links.alpha_s
    return {
        "ranks": len(found.ranks),
        "links": len(found.links.src),
        "alpha_us_min": float(alpha_us.min()),
        "alpha_us_median": float(np.median(alpha_us)),
        "bandwidth_gbs_min": float(bandwidth_gbs.min()),
        "bandwidth_gbs_median": float(np.median(bandwidth_gbs)),
        "findings": list(found.findings),
        "seconds": found.seconds,
    }
