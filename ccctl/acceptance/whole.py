"""The last stage of an acceptance: collectives on all ranks, by ccctl and by the libraries of the ranks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ccctl import console
from ccctl.acceptance.folder import AcceptanceFolder
from ccctl.acceptance.request import AcceptanceRequest
from ccctl.arguments import BenchOptions, Contestant, setup_of
from ccctl.errors import CcctlError, FoundProblem, TimeoutExpired, UnavailableError
from ccctl.launching import World, run_ranks
from ccctl.prepared import BenchWorkload, prepared
from probes.base import format_size, plural

if TYPE_CHECKING:
    from exec.benchmark import Integrity, Report
    from probes.link_costs import Profile
    from synth.collective import Kind

__all__ = ["WholeStage", "cost_size", "fitting_sizes"]

# The collectives of training: sums of gradients, and the exchange of experts' tokens.
_COLLECTIVES: tuple[Kind, ...] = ("all_reduce", "all_to_all")
_ITERATIONS = 10
# The largest size whose steps are compared with the reference, which runs all ranks on one core.
_MOST_CHECKED_BYTES = 1 << 20
# The sizes in bytes to choose from, the largest first. The large one is the first whose all_reduce should
# take at most _LONGEST_S on the network. GPUs start at 1 GiB. Processes share cores and memory, which the
# network does not show, so they start at 16 MiB. The small one is the last, where latency decides.
_SIZES = {"cuda": tuple(1 << bits for bits in range(30, 15, -2))}
_SIZES["mpi"] = _SIZES["cuda"][3:]
_LONGEST_S = 0.25
# With a budget, one all_reduce should take at most this share of the time that is left: two collectives run
# 13 times each by about three libraries.
_SHARE_OF_BUDGET = 1 / 80


@dataclass
class WholeStage:
    """The stage on the ranks of ``world``; ``profile`` has the costs of their links."""

    request: AcceptanceRequest
    folder: AcceptanceFolder
    world: World
    profile: Profile
    _reports: list[Report] = field(default_factory=list)
    _left_out: list[str] = field(default_factory=list)
    _schedules: dict[Kind, Contestant] = field(default_factory=dict)
    _libraries: dict[Kind, tuple[str, ...]] = field(default_factory=dict)

    def run(self) -> list[str]:
        """Run the collectives and write their report; return a line for each that was left out."""
        budget_s = self.request.whole_budget_s()
        sizes_bytes = self.request.sizes_bytes or fitting_sizes(self.profile, budget_s)
        for kind in _COLLECTIVES:
            left_s = self.request.whole_budget_s()
            if left_s is not None and left_s <= 1.0:
                self._left_out.append(f"{kind}: no time was left of the budget")
            else:
                self._collective(kind, sizes_bytes)
        if self._reports:
            rows = tuple(row for one in self._reports for row in one.rows)
            machine = {name: value for one in self._reports for name, value in one.machine.items()}
            report = replace(
                self._reports[0], rows=rows, machine=machine, integrity=self._integrity(sizes_bytes)
            )
            self.folder.write("report", report)
            if _COLLECTIVES[0] in self._schedules:
                self.folder.write("selection", self._schedules[_COLLECTIVES[0]].selection)
        for text in self._left_out:
            console.warn(f"collectives: {text}")
        return self._left_out

    @property
    def _device(self) -> str:
        return "cuda" if self.profile.transport == "cuda" else "cpu"

    def _collective(self, kind: Kind, sizes_bytes: tuple[int, ...]) -> None:
        """Keep the report of one collective, beside all libraries that can be used."""
        from exec.peers import libraries_here

        libraries, before = list(libraries_here(self._device)), len(self._reports)
        while True:
            try:
                self._bench(kind, sizes_bytes, libraries)
            except UnavailableError as error:
                # All libraries that are left run again: a refusal ends the whole benchmark.
                del self._reports[before:]
                if libraries:
                    self._left_out.append(f"{kind} by {libraries.pop()}: {error.message.strip()}")
                    continue
                self._left_out.append(f"{kind}: {error.message}")
            except FoundProblem as error:
                self._left_out.append(f"{kind}: {error.message}")
            except TimeoutExpired:
                self.request.seconds_left()
                done = sum(len(report.rows) for report in self._reports[before:])
                after = f", after {plural(done, 'row')}" if done else ""
                self._left_out.append(f"{kind}: it took longer than what was left of the budget{after}")
            return

    def _bench(self, kind: Kind, sizes_bytes: tuple[int, ...], libraries: list[str]) -> None:
        """Run one collective of all sizes, and keep each size's rows as soon as they are there."""
        sizes = " and ".join(map(format_size, sizes_bytes))
        console.note(f"collectives: {kind} of {sizes} on {plural(len(self.profile.ranks), 'rank')}")
        path = str(self.folder.file("profile.json"))
        options = BenchOptions(
            collective=kind,
            listed=",".join(map(str, sizes_bytes)),
            profile=path,
            device=self._device,
            iterations=_ITERATIONS,
            placement="out",
            per_iteration=True,
            hosts=self.world.hosts,
            hostfile=self.world.hostfile,
        )
        limit_s = _least(self.request.whole_budget_s(), self.request.seconds_left())
        workload = BenchWorkload(
            kind, None, sizes_bytes, self.world, path, self._device, race=False, timeout_s=limit_s
        )
        one, left_s = prepared(workload)
        self._schedules[kind], self._libraries[kind] = one, tuple(libraries)
        run_ranks(
            "exec.benchmark.runner:bench_all_task",
            setup_of(options).requests([one], tuple(libraries)),
            replace(self.world, ranks=len(self.profile.ranks)),
            label=kind,
            timeout_s=left_s,
            keep=self._keep,
        )

    def _integrity(self, sizes_bytes: tuple[int, ...]) -> Integrity | None:
        """Return whether an all_reduce gives the same bits twice, and who corrupts data."""
        from exec.benchmark import IntegrityRequest

        kind = _COLLECTIVES[0]
        left_s = _least(self.request.whole_budget_s(), self.request.seconds_left())
        if kind not in self._schedules:
            self._left_out.append(f"checksums: {kind} could not run")
            return None
        if left_s is not None and left_s <= 1.0:
            self._left_out.append("checksums: no time was left of the budget")
            return None
        size_bytes = min(max(sizes_bytes), _MOST_CHECKED_BYTES)
        console.note(f"collectives: {kind} twice, with checksums after each step")
        try:
            found: Integrity = run_ranks(
                "exec.benchmark.integrity:integrity_task",
                IntegrityRequest(
                    self._schedules[kind].at(size_bytes).program,
                    size_bytes,
                    self._libraries[kind],
                    self._device,
                ),
                replace(self.world, ranks=len(self.profile.ranks)),
                label="integrity",
                timeout_s=left_s,
            )
        except (UnavailableError, FoundProblem) as error:
            self._left_out.append(f"checksums: {error.message}")
        except TimeoutExpired:
            self.request.seconds_left()
            self._left_out.append("checksums: they took longer than what was left of the budget")
        else:
            return found
        return None

    def _keep(self, piece: Report) -> None:
        if piece.rows:
            self._reports.append(piece)


def fitting_sizes(profile: Profile, budget_s: float | None = None) -> tuple[int, ...]:
    """Return a small size, and the largest one whose all_reduce should take a fraction of a second.

    The fraction is less with a ``budget_s``. There is only one size if no larger size fits.
    """
    from exec.acceptance import collective_time_s
    from synth.networks import from_profile

    network = from_profile(profile, "the measured network")
    sizes = _SIZES[profile.transport]
    longest_s = _LONGEST_S if budget_s is None else min(_LONGEST_S, budget_s * _SHARE_OF_BUDGET)
    for size_bytes in sizes[:-1]:
        try:
            if collective_time_s(network, "all_reduce", size_bytes) <= longest_s:
                return sizes[-1], size_bytes
        except CcctlError:
            continue
    return (sizes[-1],)


def cost_size(request: AcceptanceRequest, profile: Profile, report: Report | None) -> int:
    """Return the size for which faults are priced: the largest that was run, or that should have been."""
    run = [row.size_bytes for row in report.rows if row.collective == "all_reduce"] if report else []
    return max(run or request.sizes_bytes or fitting_sizes(profile))


def _least(*limits_s: float | None) -> float | None:
    known = [limit_s for limit_s in limits_s if limit_s is not None]
    return min(known) if known else None
