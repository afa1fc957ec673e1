"""Races between schedules whose predicted times are too close to rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ccctl.errors import UsageError
from ccctl.launching import World, placed, run_ranks, started_by_mpi
from probes.base import plural

if TYPE_CHECKING:
    from exec.benchmark import Entrant
    from probes.base import Progress
    from synth import RaceWinner
    from synth.network import Network
    from synth.prediction import Table
    from synth.program import Program
    from synth.schedules import Schedule

__all__ = ["RaceLauncher"]

_TASK = "exec.benchmark.runner:bench_all_task"


@dataclass(frozen=True)
class RaceLauncher:
    """A launcher of races on the ranks of ``world``, each launch within ``timeout_s``.

    With ``sockets`` the ranks need no MPI; ``device`` is one of ``exec.executors``. The library that connects
    the ranks takes part with its own collective. ``begin`` is called before the ranks start, so that their
    progress bar can replace the current one.
    """

    world: World
    timeout_s: float | None
    sockets: bool = False
    device: str = "cpu"
    begin: Callable[[], object] = tuple

    @staticmethod
    def of(
        network: Network, world: World, timeout_s: float | None, *, sockets: bool = False, device: str = "cpu"
    ) -> RaceLauncher:
        """Return the launcher of races for a network, one process for each of its ranks.

        Raises UsageError inside mpirun or srun, and if the network has several hosts but ``world`` names
        none.
        """
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

    def __call__(
        self, sizes: Sequence[tuple[int, Sequence[Schedule]]], progress: Progress
    ) -> list[RaceWinner]:
        """Return the winner at each size: a schedule, or the library's own collective."""
        from exec.benchmark import entrants, judged_race, race_requests
        from synth import RaceWinner

        programs: dict[Table, Program] = {}
        entered: list[tuple[int, list[Entrant]]] = []
        for size, schedules in sizes:
            progress.update(len(entered), len(sizes), f"predicting {plural(len(schedules), 'schedule')}")
            entered.append((size, entrants(schedules, programs)))
        self.begin()
        requests = tuple(replace(one, device=self.device) for one in race_requests(entered, self.library))
        report = run_ranks(
            _TASK, requests, self.world, label="race", timeout_s=self.timeout_s, sockets=self.sockets
        )
        return [
            RaceWinner(list(schedules).index(won.winner.schedule), won.library, won.race)
            for won, (_, schedules) in zip(judged_race(entered, report), sizes, strict=True)
        ]

    @property
    def library(self) -> str:
        """The name of the library that competes; "" if there is none."""
        from exec.peers import library_of

        return library_of(self.device, sockets=self.sockets)
