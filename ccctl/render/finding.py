"""All findings of a set of artifacts in one list, the worst first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from probes.base import plural, some

if TYPE_CHECKING:
    from ccctl.artifacts import Artifact, Gathered
    from ccctl.render.svg import Bounds
    from exec.benchmark import JudgedRow, Report, Row
    from probes.link_costs import Profile
    from probes.profiling import History
    from synth.network import Network

__all__ = ["ArtifactFinding", "bench_bounds", "findings", "unproven"]

# The order of findings: dead hosts, wrong results, slow parts, then all others.
_ORDER = ("dead", "wrong", "slow", "unproven", "incomplete", "unread", "doubtful", "behind")
_OTHER_TOOLS = ("nccl-tests", "nccl-inspector", "flight-recorder", "osu")
_SLOW = ("low", "very low")
_MOST_NAMED = 4
# Ratios of medians below this are noise on most machines.
_BEHIND = 1.1
_MOST_RANKS, _MOST_SIZES = 64, 16


@dataclass(frozen=True)
class ArtifactFinding:
    """One finding: a stable word for its kind, its source file, and a sentence."""

    what: Literal["dead", "wrong", "slow", "unproven", "incomplete", "unread", "doubtful", "behind"]
    source: str
    text: str

    @property
    def severe(self) -> bool:
        return _ORDER.index(self.what) < _ORDER.index("unread")


def findings(gathered: Gathered) -> list[ArtifactFinding]:
    """Return the findings of all artifacts and the unreadable files, the worst first."""
    found = [
        ArtifactFinding("wrong" if one.wrong else "unread", one.source, one.reason) for one in gathered.unread
    ]
    # A profile names the slow host; a history only says that there is one.
    for artifact in sorted(gathered.artifacts, key=lambda one: one.kind == "history"):
        found += _of(artifact, gathered.artifacts)
    return sorted(_merged(found), key=lambda one: _ORDER.index(one.what))


def _merged(found: Sequence[ArtifactFinding]) -> list[ArtifactFinding]:
    """Merge equal findings of several files into one that names the files."""
    sources: dict[tuple[str, str], list[ArtifactFinding]] = {}
    for one in found:
        sources.setdefault((one.what, one.text), []).append(one)
    return [
        same[0]
        if len(same) == 1
        else replace(
            same[0], text=f"{same[0].text} (also in {some([one.source for one in same[1:]], _MOST_NAMED)})"
        )
        for same in sources.values()
    ]


def unproven(artifact: Artifact) -> list[str]:
    """Return the checker's findings in a schedule of any kind or in groups; empty if proven."""
    from synth.check import check_any, examine_groups
    from synth.schedules import SCHEDULE_KINDS

    if artifact.kind == "groups":
        return list(examine_groups(artifact.body).findings)
    return check_any(artifact.body) if artifact.kind in SCHEDULE_KINDS else []


def bench_bounds(report: Report, others: Sequence[Artifact]) -> Bounds:
    """Return the proven bound on the time of each row, on a network of the artifacts with as many ranks.

    Profiles are preferred to the networks of schedules and selections. Only the first 16 sizes, and at most
    64 ranks, have bounds, as computing them is slow.
    """
    network = _network_of(report, others)
    found: dict[tuple[str, int], float] = {}
    if network is None or report.ranks > _MOST_RANKS:
        return found
    for row in report.rows:
        key = (row.collective, row.size_bytes)
        if key not in found and len(found) < _MOST_SIZES and (bound_s := _bound_s(network, row)):
            found[key] = bound_s
    return found


def _bound_s(network: Network, row: Row) -> float | None:
    from probes.base import CcctlError
    from synth.bounds import bounds
    from synth.collective import collective

    try:
        shape = collective(row.collective, network.ranks, 1, max(0, row.root))
        chunk_bytes = row.size_bytes // max(1, shape.total_bytes(1))
        bound_s = bounds(network, shape, chunk_bytes, fluid=True)[0].time_s if chunk_bytes else 0.0
    except CcctlError:
        return None
    return bound_s if 0 < bound_s < float("inf") else None


def _network_of(report: Report, others: Sequence[Artifact]) -> Network | None:
    from synth.networks import from_profile
    from synth.schedules import SCHEDULE_KINDS, AnySchedule

    bodies: dict[str, list[Any]] = {}
    for other in others:
        bodies.setdefault(other.kind, []).append(other.body)
    for profile in bodies.get("profile", ()):
        if len(profile.ranks) == report.ranks:
            return from_profile(profile)
    planned: list[AnySchedule] = [one for kind in SCHEDULE_KINDS for one in bodies.get(kind, ())]
    fitting = [one for one in planned if one.network.ranks == report.ranks]
    return fitting[0].listed_network() if fitting else None


def _of(artifact: Artifact, others: Sequence[Artifact]) -> Iterator[ArtifactFinding]:
    source, body = artifact.source, artifact.body
    for problem in unproven(artifact):
        yield ArtifactFinding("unproven", source, problem)
    if artifact.kind == "topology":
        for one in body.findings:
            yield ArtifactFinding("doubtful", source, f"{one.where}: {one.what}: {one.text}")
    elif artifact.kind == "profile":
        yield from _of_profile(body, source)
    elif artifact.kind == "history":
        yield from _of_history(body, source)
    elif artifact.kind == "report":
        yield from _of_report(body, source, bench_bounds(body, others), others)
    elif artifact.kind == "training":
        if body.interrupted:
            yield ArtifactFinding("incomplete", source, f"interrupted: {body.interrupted}")
        for row in body.rows:
            if row.lost:
                yield ArtifactFinding("incomplete", source, f"{row.label}: ranks {row.lost} died")


def _of_profile(profile: Profile, source: str) -> Iterator[ArtifactFinding]:
    from ccctl.render.svg import SLOW

    # Profiles of older versions do not record the kind of a finding.
    slow = any(SLOW & set(words.split(",")) for words in profile.links.flags)
    kinds = profile.finding_kinds or ("slow" if slow else "doubtful",) * len(profile.findings)
    for kind, text in zip(kinds, profile.findings, strict=True):
        yield ArtifactFinding(kind, source, text)


def _of_history(history: History, source: str) -> Iterator[ArtifactFinding]:
    worse = [event for event in history.events if event.kind in ("drift", "gone")]
    now = int((history.since_s("bandwidth") > 0).sum()) + int((history.since_s("latency") > 0).sum())
    if now and worse:
        yield ArtifactFinding(
            "slow", source, f"{plural(now, 'link')} worse than the baseline; {worse[-1].text}"
        )


def _judged(report: Report, source: str, others: Sequence[Artifact]) -> Iterator[ArtifactFinding]:
    """Yield the findings of `explain` on all rows, if their network is known."""
    from ccctl.arguments import network_of
    from exec.benchmark import abnormal, judged
    from probes.base import CcctlError

    network = _network_of(report, others)
    # Tables of other tools name the GPUs, which identifies the network of one host.
    foreign = report.executor in _OTHER_TOOLS
    if report.wrong_results or (network is None and not foreign):
        return
    if report.ranks > _MOST_RANKS:
        yield ArtifactFinding(
            "doubtful", source, f"not judged: {report.ranks} ranks; ccctl explain judges them"
        )
        return
    try:
        network = network or network_of(report, None)
    except CcctlError:
        known = "no network of as many ranks is among the files; ccctl explain is told of one"
        yield ArtifactFinding("doubtful", source, f"whether it is normal is not known: {known}")
        return
    try:
        found = abnormal(judged(report, network))
    except CcctlError as error:
        yield ArtifactFinding("doubtful", source, f"whether it is normal is not known: {error.message}")
        return
    for verdict, rows in found.items():
        for kind in dict.fromkeys(one.row.collective for one in rows):
            own = [one for one in rows if one.row.collective == kind]
            yield ArtifactFinding(
                "slow" if verdict in _SLOW else "doubtful", source, _shortfall(own, network.name)
            )


def _shortfall(rows: Sequence[JudgedRow], network: str) -> str:
    """Return a sentence on the largest row's result, and how many other rows are like it."""
    from ccctl.render.units import about

    one = max(rows, key=lambda row: row.row.size_bytes)
    reached, most = one.busbw_gbs(one.time_s), one.busbw_gbs(one.bound.time_s)
    more = f", as {plural(len(rows) - 1, 'more row')}" if len(rows) > 1 else ""
    return (
        f"{one.row.collective} of {about(one.row.size_bytes)} is {one.verdict}: "
        f"{reached:.1f} GB/s busbw of at most {most:.1f} on {network}{more}"
    )


def _of_report(
    report: Report, source: str, bounds_s: Bounds, others: Sequence[Artifact]
) -> Iterator[ArtifactFinding]:
    from ccctl.render.units import about

    if report.interrupted:
        yield ArtifactFinding("incomplete", source, f"interrupted: {report.interrupted}")
    if report.corrupt:
        yield ArtifactFinding("wrong", source, report.corrupt)
    for note in report.notes:
        yield ArtifactFinding("doubtful", source, note)
    yield from _judged(report, source, others)
    behind: dict[str, list[tuple[float, Row]]] = {}
    for row in report.rows:
        if wrong := row.wrong_results:
            yield ArtifactFinding("wrong", source, f"{row.collective} of {about(row.size_bytes)}: {wrong}")
        for name, peer in row.peers.items():
            if row.shown is not None and peer.time_s > 0 and not row.doubt(name):
                behind.setdefault(name, []).append((row.shown.time_s / peer.time_s, row))
    for name, pairs in behind.items():
        slower = [(ratio, row) for ratio, row in pairs if ratio > _BEHIND]
        if slower:
            ratio, row = max(slower, key=lambda pair: pair[0])
            yield ArtifactFinding(
                "behind",
                source,
                f"slower than {name} at {len(slower)} of {plural(len(pairs), 'size')}, most at "
                f"{about(row.size_bytes)}: {ratio:.2f} times its time",
            )
    yield from _beaten(report, source, bounds_s)


def _beaten(report: Report, source: str, bounds_s: Bounds) -> Iterator[ArtifactFinding]:
    beaten = [
        row
        for row in report.rows
        if row.shown and row.shown.time_s < 0.95 * bounds_s.get((row.collective, row.size_bytes), 0.0)
    ]
    if beaten:
        yield ArtifactFinding(
            "doubtful",
            source,
            f"{plural(len(beaten), 'row')} faster than the bound allows: the network that the bound is of is "
            "not the one that this was measured on",
        )
