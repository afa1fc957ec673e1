"""`ccctl run --adaptive`: many collectives on a session that adapts to links, late ranks and lost ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ccctl import console
from ccctl.arguments.units import parse_size
from ccctl.launching import World, placed, run_ranks

if TYPE_CHECKING:
    from exec.adaptive.session import Event

__all__ = ["run_adaptively"]


def run_adaptively(
    profile: str | None,
    world: World,
    size: str,
    iterations: int,
    profile_every: int,
    *,
    relays: bool,
    json: bool,
    timeout_s: float | None,
) -> None:
    """Run ``iterations`` all_reduces of ``size`` bytes, each element checked; rows come as things happen.

    Raises SystemExit with 1 where an element was wrong.
    """
    from ccctl.arguments.networks import load_network
    from ccctl.summaries.adaptive import event_line, finish, summary_of
    from exec.adaptive.coordinator import Policy
    from exec.adaptive.iterations import Iterations

    placed(world)
    size_bytes = parse_size(size, "--size")
    network = None if profile is None else load_network(profile, None, None)[0]
    asked = Iterations(
        iterations,
        max(1, size_bytes // 4),
        network=network,
        profile_every=profile_every,
        policy=Policy(relays=relays),
    )

    def keep(piece: tuple[int, Event]) -> None:
        rank, event = piece
        if not json and rank == 0:
            console.data(event_line(event))

    report = run_ranks(
        "exec.adaptive.iterations:iterations_task",
        asked,
        world,
        label="run",
        timeout_s=timeout_s,
        keep=keep,
        survive=True,
    )
    if json:
        console.summary(summary_of(report))
    else:
        finish(report)
    if report.wrong:
        raise SystemExit(1)
