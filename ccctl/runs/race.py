"""Runs schedules that predictions cannot tell apart against each other, and takes the fastest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ccctl import console
from ccctl.errors import UsageError
from ccctl.launching import World, placed, run_ranks, started_by_mpi
from probes.base import plural

if TYPE_CHECKING:
    from exec.benchmark import Entrant, Judged
    from synth.network import Network
    from synth.portfolio import Candidates, Request, Swept, Synthesis
    from synth.prediction import Table
    from synth.program import Program
    from synth.schedule import Schedule

__all__ = ["RaceLauncher"]

_TASK = "exec.benchmark.runner:bench_all_task"


@dataclass(frozen=True)
class RaceLauncher:
    """Where races are run: the ranks of ``world``, each launch within ``timeout_s``.

    ``sockets`` joins them without MPI; ``device`` is that of ``exec.executors``. The library that joins the
    ranks takes part with its own collective.
    """

    world: World
    timeout_s: float | None
    sockets: bool = False
    device: str = "cpu"

    @staticmethod
    def of(
        network: Network, world: World, timeout_s: float | None, *, sockets: bool = False, device: str = "cpu"
    ) -> RaceLauncher:
        """The course for a network, one rank for each of its ranks; raises UsageError where there is none."""
        if started_by_mpi():
            raise UsageError(
                "a race of schedules starts the ranks by itself: run it outside mpirun and srun",
                hint="--hosts or --hostfile name other hosts.",
            )
        world = replace(world, ranks=network.ranks)
        _, where = placed(world)
        hosts = len(set(network.hosts))
        if hosts > 1 and not where:
            raise UsageError(
                f"a race of schedules on {network.name} runs on {hosts} hosts: name them with --hosts"
            )
        return RaceLauncher(world, timeout_s, sockets, device)

    def fastest(self, found: Synthesis, kept: Sequence[Schedule], request: Request) -> Synthesis:
        """``found`` with the fastest of its schedule, those ``kept`` and the algorithms of libraries."""
        from exec.benchmark import entrants
        from synth.portfolio import library_schedules, proven_with

        outcome = found.schedule.outcome
        assert outcome is not None
        every = entrants([found.schedule, *kept, *library_schedules(request)])
        size_bytes = found.schedule.collective.total_bytes(found.schedule.chunk_bytes)
        [judged] = self._raced([(size_bytes, every)])
        schedule = replace(judged.winner.schedule, seed=request.seed, outcome=None, race=judged.race)
        why = f"the fastest of {plural(len(every), 'schedule')} that ran"
        return replace(found, schedule=proven_with(schedule, outcome.bounds), why=why)

    def selection(self, found: Candidates) -> Swept:
        """The selection of what is the fastest at each size: candidates, or the library's own collective."""
        from exec.benchmark import entrants
        from synth.portfolio import measured

        at_sizes = [found.at(size) for size in found.sizes]
        programs: dict[Table, Program] = {}
        with console.progress("race", len(at_sizes)) as bar:
            sizes: list[tuple[int, list[Entrant]]] = []
            for size, every in zip(found.sizes, at_sizes, strict=True):
                bar.update(len(sizes), f"predicting {plural(len(every), 'schedule')}")
                sizes.append((size, entrants(every, programs)))
        judged = self._raced(sizes)
        winners = [
            next(at for at, one in enumerate(every) if one is judgement.winner.schedule)
            for judgement, every in zip(judged, at_sizes, strict=True)
        ]
        return measured(found, winners, [one.library for one in judged], [one.race for one in judged])

    @property
    def library(self) -> str:
        """The library of the ranks, as a peer; "" where they have none."""
        from exec.peers import library_of

        return library_of(self.device, sockets=self.sockets)

    def _raced(self, sizes: Sequence[tuple[int, Sequence[Entrant]]]) -> list[Judged]:
        from exec.benchmark import asked, judged_race

        requests = tuple(replace(one, device=self.device) for one in asked(sizes, self.library))
        report = run_ranks(
            _TASK, requests, self.world, label="race", timeout_s=self.timeout_s, sockets=self.sockets
        )
        return list(judged_race(sizes, report))
