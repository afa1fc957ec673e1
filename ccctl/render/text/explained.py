"""The output of ``explain`` for a report: one object, a table with sentences, Markdown or JUnit cases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ccctl import console
from ccctl.render import Case, Column, about, cell, cells, figures, markdown_table, percent, seconds
from ccctl.render.text.report import changes_of
from ccctl.render.text.side_by_side import CHANGES
from probes.base import plural, some

if TYPE_CHECKING:
    from exec.benchmark import JudgedRow, Report, RowChange
    from exec.benchmark.foreign import Inspected, WaitTime

__all__ = ["Explained"]

_MEANS = {
    "normal": "normal",
    "low": "low: below two thirds of what the slower of them could carry",
    "very low": "very low: below a third of what the slower of them could carry",
    "start-up": "too small to judge: starting the steps takes longer than moving the bytes",
    "in-network": "faster than ranks alone can be: switches do the sums (NVLink SHARP, SHARP), "
    "or the run was on another network",
    "impossible": "faster than this network allows: the run was on another one",
}
# The wait for the last rank is reported as the problem from this share of a collective's time on.
_MUCH_WAITING = 0.2
_MOST_NAMED = 4
# A rate this near to that of a whole number of NICs, whose headers take some per cent, counts as theirs.
_ALIKE = 0.94
# Rates hardly grow from _LARGE bytes on. A difference above the share _NOTABLE is named.
_LARGE = 1 << 28
_NOTABLE = 0.05


@dataclass(frozen=True)
class Explained:
    """A report judged against its network.

    ``host_nics`` is the number of NICs of each host, 0 if unknown. ``counted`` are the positions of the rows
    that the verdict covers. ``least`` is the share of the bound that they must reach, if any. ``made_s`` maps
    positions to the time of a synthesized schedule. ``baseline`` is the comparison with an older report.
    ``recorded`` is what NCCL's Inspector recorded besides, if it was used.
    """

    source: str
    network: str
    host_nics: int
    report: Report
    rows: tuple[JudgedRow, ...]
    counted: tuple[int, ...]
    least: float | None
    made_s: dict[int, float]
    baseline: tuple[RowChange, ...]
    recorded: Inspected | None = None

    def waiting(self, at: int) -> WaitTime | None:
        """Return how long ranks waited for the last one in the calls of a row, if recorded."""
        row = self.rows[at].row
        every = self.recorded.waiting if self.recorded else ()
        return next(
            (one for one in every if (one.collective, one.size_bytes) == (row.collective, row.size_bytes)),
            None,
        )

    def failure(self, at: int) -> str:
        """Return why a row fails (wrong results, too slow or impossible); "" if it passes."""
        judged = self.rows[at]
        if wrong := judged.row.wrong_results:
            return f"{_label(judged)}: {wrong}"
        if self.least is None or at not in self.counted:
            return ""
        if judged.verdict == "impossible":
            return f"{_label(judged)}: {_MEANS['impossible']} ({self.network})"
        if judged.reached >= self.least:
            return ""
        return (
            f"{_label(judged)}: {percent(judged.reached)} of the bound, asked for {percent(self.least)}: "
            f"{_gbs(judged.busbw_gbs(judged.time_s))} GB/s busbw of at most "
            f"{_gbs(judged.busbw_gbs(judged.bound.time_s))}"
        )

    @property
    def failures(self) -> list[str]:
        """Every reason for a failure in CI, wrong results first."""
        slow = (self.failure(at) for at, judged in enumerate(self.rows) if not judged.row.wrong_results)
        return [
            *self.wrong,
            *(why for why in slow if why),
            *([f"{self.source}: {self.report.interrupted}"] if self.report.interrupted else []),
            *(change.told for change in self.baseline if change.slower),
        ]

    @property
    def wrong(self) -> list[str]:
        """A message for each row with wrong results, and for wrong results outside the rows."""
        found = [self.failure(at) for at, one in enumerate(self.rows) if one.row.wrong_results]
        judged = {id(one.row) for one in self.rows}
        found += [
            f"{row.collective} of {about(row.size_bytes)}: {row.wrong_results}"
            for row in self.report.rows
            if row.wrong_results and id(row) not in judged
        ]
        return found + ([self.report.corrupt] if self.report.corrupt else [])

    @property
    def verdict(self) -> str:
        """One line about all rows: wrong results if any, else the number of rows below expectation."""
        from exec.benchmark import abnormal

        if wrong := self.wrong:
            return f"Wrong results, so their speed means nothing: {some(wrong, _MOST_NAMED)}."
        found = []
        for name, rows in abnormal(self.rows).items():
            sizes = [judged.row.size_bytes for judged in rows]
            span = about(min(sizes)) + (f" to {about(max(sizes))}" if max(sizes) > min(sizes) else "")
            found.append(f"{name}: {len(rows)} of {plural(len(self.rows), 'row')} ({span})")
        passes = "" if self.least is not None else " Low rows leave the exit status 0; --at-least makes it 1."
        return (
            f"Not normal: {'; '.join(found)}.{passes}"
            if found
            else "All rows are normal, or too small to judge."
        )

    def summary(self) -> dict[str, Any]:
        """Return the object of ``explain --json``: plain values with units in their names."""
        return {
            **figures(self, "source network verdict at_least_percent=least_percent findings=failures"),
            **figures(self.report, "ranks hosts library machine notes"),
            "rows": [self._values(at) for at in range(len(self.rows))],
            "baseline": changes_of(self.baseline),
            "ok": not self.failures,
        }

    def draw(self) -> None:
        """Print the table of all rows, then the sentences on the rows that count."""
        console.data(f"# {self._title()}")
        console.data(
            "# busbw in GB/s: measured; at most: proven for this size; ring, tree, direct: what these "
            "algorithms carry by bytes alone, without latency"
        )
        columns, rows = self._table()
        if self.wrong:
            console.prose(self.verdict)
            console.data("")
        console.table(columns, rows)
        for line in self.sentences():
            console.data("")
            console.prose(line)

    def markdown(self) -> str:
        """Return the table and the sentences in Markdown."""
        columns, rows = self._table()
        lead = [f"**{cell(self.verdict)}**\n"] if self.wrong else []
        right = [at for at, name in enumerate(columns) if name not in ("collective", "verdict")]
        parts = [f"### {cell(self._title())}\n", *lead, markdown_table(columns, rows, right)]
        parts += [f"{cell(line)}\n" for line in self.sentences()]
        if self.baseline:
            parts.append(markdown_table(*cells(CHANGES, self.baseline), [1, 2, 3, 4]))
        parts += [f"**failed:** {cell(why)}\n" for why in self.failures]
        return "\n".join(parts)

    def cases(self) -> list[Case]:
        """Return a JUnit case for each row, skipped if it does not count, and for each change."""
        found = []
        for at, judged in enumerate(self.rows):
            name = f"{_label(judged)}, {judged.row.dtype}"
            if why := self.failure(at):
                found.append(Case(name, judged.time_s, "failed", why))
            elif at in self.counted and self.least is not None:
                found.append(Case(name, judged.time_s, "passed", self._sentence(at)))
            else:
                why = "no --at-least" if self.least is None else "--at-least counts the largest size only"
                found.append(Case(name, judged.time_s, "skipped", why))
        for why in (self.report.corrupt, self.report.interrupted):
            if why:
                found.append(Case("the whole run", 0.0, "failed", why))
        for change in self.baseline:
            why = change.told
            name = f"baseline: {change.label}"
            found.append(Case(name, change.new_s, "failed" if change.slower else "passed", why))
        return found

    def sentences(self) -> list[str]:
        """Return the sentences on each row that counts, and on the recording."""
        found = [self._sentence(at) for at in self.counted]
        if self.report.interrupted:
            found.append(f"The run was interrupted: {self.report.interrupted}.")
        if not self.wrong:
            found.append(self.verdict)
        recorded = self.recorded
        if recorded is None:
            return found
        if recorded.recorded < self.report.ranks:
            found.append(
                f"{recorded.recorded} of {plural(self.report.ranks, 'rank')} recorded, so the times include "
                "their waiting for others. Give the folder with the files of all ranks to tell it apart."
            )
        if recorded.others:
            found.append(f"{plural(recorded.others, 'communicator')} with fewer ranks or less time left out.")
        return found

    def _title(self) -> str:
        report = self.report
        where = plural(report.ranks, "rank")
        if report.hosts:
            where += f" on {plural(len(report.hosts), 'host')}"
        return f"{self.source}: {report.library}, {where}, on {self.network}"

    def _table(self) -> tuple[list[str], list[list[str]]]:
        """Return (column names, rows), without columns that no row fills."""
        carried = [one for one in _CARRIED if any(one.value(row) is not None for row in self.rows)]
        columns = [one.below(self.rows.__getitem__) for one in (*_COLUMNS, *carried, _VERDICT)]
        if self.made_s:
            columns.insert(-1, Column("synthesized", self._made_gbs, _gbs))
        return cells(columns, range(len(self.rows)))

    def _made_gbs(self, at: int) -> float | None:
        """Return the bandwidth of a schedule that was made for a row; None if there is none."""
        return self.rows[at].busbw_gbs(self.made_s[at]) if at in self.made_s else None

    def _sentence(self, at: int) -> str:
        judged = self.rows[at]
        most = _gbs(judged.busbw_gbs(judged.bound.time_s))
        who = "ranks and switches" if judged.bound.name == "ports of switches" else "ranks"
        parts = [
            f"{_label(judged)}: {_gbs(judged.busbw_gbs(judged.time_s))} GB/s busbw, "
            f"{percent(judged.reached)} of the {most} that {who} can reach here at most "
            f"(proven: {judged.bound.told})."
        ]
        if judged.verdict in ("in-network", "impossible"):
            parts.append(
                f"With sums in switches it is {percent(judged.reached_in_network)} of "
                f"{_gbs(judged.busbw_gbs(judged.in_network.time_s))} ({judged.in_network.name})."
            )
        two_hosts = len(self.report.hosts) == 2
        for each in judged.libraries:
            could = _gbs(judged.busbw_gbs(each.time_s))
            whose = "A" if self.report.executor == "mpi" else "NCCL's"
            once = ", as it crosses each NIC only once" if each.algorithm == "tree" and two_hosts else ""
            parts.append(f"{whose} {each.algorithm} could carry {could}{once}, limited by {each.binding}.")
        if at in self.made_s:
            parts.append(
                f"A synthesized schedule is predicted to reach {_gbs(judged.busbw_gbs(self.made_s[at]))}."
            )
        if judged.row.wrong_results:
            parts.append(f"Verdict: wrong results ({judged.row.wrong_results}).")
        else:
            parts.append(f"Verdict: {_MEANS[judged.verdict]}.")
            parts += self._public(judged)
            parts += self._next_steps(judged)
        if waiting := self.waiting(at):
            parts.append(_waited(waiting))
        return " ".join(parts)

    def _public(self, judged: JudgedRow) -> Iterator[str]:
        """Yield what others measured on such a machine, for a large all_reduce."""
        from synth.networks import public_busbw_gbs

        known = public_busbw_gbs(self.network)
        if not known or judged.row.collective != "all_reduce" or judged.row.size_bytes < _LARGE:
            return
        least, *more = known.items()
        name, gbs = least
        below = 1 - judged.busbw_gbs(judged.time_s) / gbs
        others = "".join(f", {rate:g} with {algorithm}" for algorithm, rate in more)
        this = f"; this is {percent(below)} below {name}" if below > _NOTABLE else ""
        off = f", and {more[0][0]} seems not to be used" if this and more else ""
        yield f"On such machines others measured {gbs:g} with {name}{others}{this}{off}."

    def _next_steps(self, judged: JudgedRow) -> Iterator[str]:
        """Yield what a slow row may mean, and where to look."""
        if judged.verdict not in ("low", "very low"):
            return
        expected_s = judged.libraries[-1].time_s if judged.libraries else judged.bound.time_s
        nics = self.host_nics * expected_s / judged.time_s
        if len(self.report.hosts) > 1 and _ALIKE <= nics < self.host_nics - 0.5:
            yield f"It is {_nics_in_words(nics)} of the {plural(self.host_nics, 'NIC')} of a host carry."
        if judged.row.crowded:
            yield f"Ranks waited for cores ({judged.row.crowded}): run again with at most one rank a core."
            return
        if self.report.executor == "mpi":
            yield "ccctl accept measures the links."
            return
        yield (
            "Look at a log of NCCL_DEBUG=INFO (ccctl explain LOG): NICs in use, GPU Direct RDMA, sockets, "
            "channels; ccctl accept measures the links."
        )

    def _values(self, at: int) -> dict[str, Any]:
        judged, waiting = self.rows[at], self.waiting(at)
        return {
            **figures(judged.row, "collective size_bytes dtype redop wrong_results"),
            **figures(
                judged, "time_us verdict bound_us=bound.time_us in_network_bound_us=in_network.time_us"
            ),
            **figures(judged.bound, "binding_bound=name binding_detail=detail"),
            "busbw_gbs": judged.busbw_gbs(judged.time_s),
            "bound_busbw_gbs": judged.busbw_gbs(judged.bound.time_s),
            "percent_of_bound": 100 * judged.reached,
            "percent_of_in_network_bound": 100 * judged.reached_in_network,
            "algorithms": {
                each.algorithm: figures(each, "time_us binding")
                | {"busbw_gbs": judged.busbw_gbs(each.time_s)}
                for each in judged.libraries
            },
            "synthesized_us": self.made_s[at] * 1e6 if at in self.made_s else None,
            "waiting": waiting and _waiting(waiting),
            "counts": at in self.counted,
            "ok": not self.failure(at),
        }


def _nics_in_words(nics: float) -> str:
    """Return "about what 3", or "between what 3 and 4" if the rate is not near to that of a whole number."""
    near = round(nics)
    if abs(nics - near) <= (1 - _ALIKE) * near:
        return f"about what {near}"
    return f"between what {int(nics)} and {int(nics) + 1}" if nics > 1 else "less than what 1"


def _gbs(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def _carried_gbs(name: str) -> Callable[[JudgedRow], float | None]:
    """Return a function from a row to the bandwidth of one of NCCL's algorithms, or to None."""
    return lambda judged: next(
        (judged.busbw_gbs(each.time_s) for each in judged.libraries if each.algorithm == name), None
    )


_COLUMNS = (
    Column("collective", "row.collective"),
    Column("size", "row.size_bytes"),
    Column("time (us)", "time_us", "{:.1f}"),
    Column("busbw", lambda judged: judged.busbw_gbs(judged.time_s), _gbs),
    Column("at most", lambda judged: judged.busbw_gbs(judged.bound.time_s), _gbs),
    Column("reached", "reached", percent),
)
_CARRIED = [Column(name, _carried_gbs(name), _gbs) for name in ("ring", "tree", "direct")]
_VERDICT = Column("verdict", lambda judged: "wrong" if judged.row.wrong_results else judged.verdict)


def _waiting(timed: WaitTime) -> dict[str, Any]:
    last = [{"rank": rank, "host": host, "percent_of_calls": 100 * often} for rank, host, often in timed.last]
    return figures(timed, "calls waited_us percent=share_percent") | {"last": last}


def _waited(timed: WaitTime) -> str:
    """Return a sentence on how long the first rank waited for the last, and which rank was last."""
    share = f"{seconds(timed.waited_s)} of {seconds(timed.waited_s + timed.transfer_s)}"
    wait = f"Before that the first rank waits {share} for the last one ({percent(timed.share)})"
    if timed.share < _MUCH_WAITING:
        return f"{wait}: ranks start together."
    rank, host, often = timed.last[0]
    if often <= 0.5:
        return f"{wait}, each time for another one: uneven compute or jitter, not the network."
    return (
        f"{wait}, in {often:.0%} of {plural(timed.calls, 'call')} for rank {rank} on {host}: "
        "look at its compute, not at the network."
    )


def _label(judged: JudgedRow) -> str:
    return f"{judged.row.collective} of {about(judged.row.size_bytes)}"
