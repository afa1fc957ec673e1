"""`ccctl run --adaptive`: many collectives on a session that adapts to links, late ranks and lost ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ccctl import console
from ccctl.errors import UsageError
from ccctl.launching import World, placed, run_ranks, started_by_mpi
from probes.base import parse_size, quoted

if TYPE_CHECKING:
    from ccctl.arguments import RunOptions
    from exec.adaptive import SessionEvent

__all__ = ["run_adaptively"]


def run_adaptively(options: RunOptions, world: World) -> None:
    """Run the collectives of ``ccctl run --adaptive``, check each element, and print rows as they arrive.

    Sizes count the larger of a rank's two buffers, as in nccl-tests. Raises SystemExit with 1 if an element
    was wrong, and UsageError if a session does not support the collective.
    """
    from ccctl.arguments import load_network, parse_collectives
    from ccctl.render.text import adaptive, event_line
    from exec.adaptive import SERVED, Iterations, WaitPolicy
    from exec.program import count_of
    from synth.collective import collective as collective_of

    if started_by_mpi():
        raise UsageError(
            "--adaptive starts its own ranks",
            hint="Run it outside mpirun and srun, with --hosts; in a job of Slurm it takes the job's nodes.",
        )
    ranks, _ = placed(world)
    size_bytes = parse_size(options.size, "--size")
    chosen = parse_collectives(options.collective, ranks)[0]
    if chosen.kind not in SERVED or chosen.members or "," in options.collective:
        raise UsageError(
            f"--collective {quoted(options.collective)}: "
            f"--adaptive runs one of {', '.join(SERVED)} on all ranks"
        )
    rooted = chosen.kind in ("broadcast", "reduce")
    network = None if options.artifact is None else load_network(options.artifact, None, None)[0]
    asked = Iterations(
        options.iterations,
        count_of(collective_of(chosen.kind, ranks, root=chosen.root), size_bytes, 4),
        kind=chosen.kind,
        root=chosen.root if rooted else None,
        network=network,
        profile_every=options.profile_every,
        policy=WaitPolicy(relays=options.relays, as_published=options.as_published),
        rejoin=options.rejoin > 0 or world.spare is not None,
    )

    def keep(piece: tuple[int, SessionEvent]) -> None:
        _, event = piece
        if not options.json:
            console.data(event_line(event))

    report = run_ranks(
        "exec.adaptive.iterations:iterations_task",
        asked,
        world,
        label="run",
        timeout_s=options.timeout,
        keep=keep,
        survive=True,
        rejoin=options.rejoin,
    )
    (console.summary if options.json else adaptive.draw)(adaptive.summary(report))
    if report.wrong:
        raise SystemExit(1)
