"""All findings of a set of artifacts in one list, the worst first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from ccctl.render.acceptance import sentence
from ccctl.render.units import about
from probes.base import CcctlError, plural, some

if TYPE_CHECKING:
    from ccctl.artifacts import Artifact, Gathered
    from ccctl.render.svg import Bounds
    from exec.benchmark import JudgedRow, Report, Row
    from probes.link_costs import Profile
    from probes.profiling import History
    from synth.network import Network

__all__ = ["ArtifactFinding", "bench_bounds", "findings", "unproven"]

# In the order of findings: dead hosts, wrong results, faults, slow parts, then all others.
Kind = Literal["dead", "wrong", "fault", "slow", "unproven", "incomplete", "unread", "doubtful", "behind"]
# A finding without its source.
_Pair = tuple[Kind, str]
_ORDER = get_args(Kind)
_OTHER_TOOLS = ("nccl-tests", "nccl-inspector", "flight-recorder", "osu")
_SLOW = ("low", "very low")
_MOST_NAMED = 4
# Ratios of medians below this are noise on most machines.
_BEHIND = 1.1
_MOST_RANKS, _MOST_SIZES = 64, 16


@dataclass(frozen=True)
class ArtifactFinding:
    """One finding: a stable word for its kind, its source file, and a sentence."""

    what: Kind
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
        own = _findings_of(artifact, gathered.artifacts)
        found += [ArtifactFinding(what, artifact.source, text) for what, text in own]
    return sorted(_merged(found), key=lambda one: _ORDER.index(one.what))


def _merged(found: Sequence[ArtifactFinding]) -> list[ArtifactFinding]:
    """Merge equal findings of several files into one that names the files."""
    sources: dict[tuple[str, str], list[ArtifactFinding]] = {}
    for one in found:
        sources.setdefault((one.what, one.text), []).append(one)
    merged = []
    for first, *more in sources.values():
        also = f" (also in {some([one.source for one in more], _MOST_NAMED)})" if more else ""
        merged.append(replace(first, text=first.text + also))
    return merged


def unproven(artifact: Artifact) -> list[str]:
    """Return the checker's findings in a schedule of any kind or in groups; empty if proven."""
    from synth.check import check, examine_groups
    from synth.schedules import SCHEDULE_KINDS

    if artifact.kind == "groups":
        return list(examine_groups(artifact.body).findings)
    return check(artifact.body) if artifact.kind in SCHEDULE_KINDS else []


def bench_bounds(report: Report, others: Sequence[Artifact]) -> Bounds:
    """Return proven bounds on the rows' times, on the network of an artifact with the same number of ranks.

    Profiles are preferred to the networks of schedules and selections. Only the first 16 pairs of collective
    and size have bounds, and none on more than 64 ranks, as computing bounds is slow.
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


def _findings_of(artifact: Artifact, others: Sequence[Artifact]) -> Iterator[_Pair]:
    kind, body = artifact.kind, artifact.body
    for problem in unproven(artifact):
        yield "unproven", problem
    if kind == "topology":
        for finding in body.findings:
            yield "doubtful", f"{finding.where}: {finding.what}: {finding.text}"
    elif kind == "profile":
        yield from _of_profile(body)
    elif kind == "history":
        yield from _of_history(body)
    elif kind == "report":
        yield from _of_report(body, others)
    elif kind == "certificate":
        for culprit in body.culprits:
            yield "fault" if culprit.severity == "fault" else "doubtful", sentence(culprit)
    elif kind == "training":
        if body.interrupted:
            yield "incomplete", f"interrupted: {body.interrupted}"
        for row in body.rows:
            if row.lost:
                yield "incomplete", f"{row.label}: ranks {row.lost} died"


def _of_profile(profile: Profile) -> Iterator[_Pair]:
    from ccctl.render.svg import SLOW

    # Profiles of older versions do not record the kind of a finding.
    slow = any(SLOW & set(words.split(",")) for words in profile.links.flags)
    kinds = profile.finding_kinds or ("slow" if slow else "doubtful",) * len(profile.findings)
    yield from zip(kinds, profile.findings, strict=True)


def _of_history(history: History) -> Iterator[_Pair]:
    worse = [event for event in history.events if event.kind in ("drift", "gone")]
    now = int((history.since_s("bandwidth") > 0).sum()) + int((history.since_s("latency") > 0).sum())
    if now and worse:
        yield "slow", f"{plural(now, 'link')} worse than the baseline; {worse[-1].text}"


def _of_report(report: Report, others: Sequence[Artifact]) -> Iterator[_Pair]:
    if report.interrupted:
        yield "incomplete", f"interrupted: {report.interrupted}"
    if report.corrupt:
        yield "wrong", report.corrupt
    for note in report.notes:
        yield "doubtful", note
    yield from _judged(report, others)
    for row in report.rows:
        if wrong := row.wrong_results:
            yield "wrong", f"{row.collective} of {about(row.size_bytes)}: {wrong}"
    yield from _behind(report)
    bounds_s = bench_bounds(report, others)
    beaten = [
        row
        for row in report.rows
        if row.shown and row.shown.time_s < 0.95 * bounds_s.get((row.collective, row.size_bytes), 0.0)
    ]
    if beaten:
        yield (
            "doubtful",
            f"{plural(len(beaten), 'row')} faster than the bound allows: they were measured on another "
            "network than that of the bound",
        )


def _judged(report: Report, others: Sequence[Artifact]) -> Iterator[_Pair]:
    """Yield the findings of `explain` on all rows, if their network is known."""
    from ccctl.arguments import network_of
    from exec.benchmark import abnormal, judged

    network = _network_of(report, others)
    # Tables of other tools name the GPUs, which identifies the network of one host.
    foreign = report.executor in _OTHER_TOOLS
    if report.wrong_results or (network is None and not foreign):
        return
    if report.ranks > _MOST_RANKS:
        yield "doubtful", f"not judged: {report.ranks} ranks; ccctl explain judges them"
        return
    why = "no file here has a network of as many ranks; ccctl explain takes one with --network"
    try:
        network = network or network_of(report, None)
        why = ""
        found = abnormal(judged(report, network))
    except CcctlError as error:
        yield "doubtful", f"not judged: {why or error.message}"
        return
    for verdict, rows in found.items():
        for kind in dict.fromkeys(one.row.collective for one in rows):
            own = [one for one in rows if one.row.collective == kind]
            crowded = "; not reliable: ranks waited for cores" if all(one.row.crowded for one in own) else ""
            is_slow = verdict in _SLOW and not crowded
            yield "slow" if is_slow else "doubtful", f"{_shortfall(own, network.name)}{crowded}"


def _shortfall(rows: Sequence[JudgedRow], network: str) -> str:
    """Return a sentence on the largest row's result, and how many other rows are like it."""
    one = max(rows, key=lambda row: row.row.size_bytes)
    reached, most = one.busbw_gbs(one.time_s), one.busbw_gbs(one.bound.time_s)
    more = f", as {plural(len(rows) - 1, 'more row')}" if len(rows) > 1 else ""
    return (
        f"{one.row.collective} of {about(one.row.size_bytes)} is {one.verdict}: "
        f"{reached:.1f} GB/s busbw of at most {most:.1f} on {network}{more}"
    )


def _behind(report: Report) -> Iterator[_Pair]:
    """Yield a finding for each library that was faster, with the size at which it gained most."""
    ratios: dict[str, list[tuple[float, int]]] = {}
    for row in report.rows:
        for name, peer in row.peers.items():
            if row.shown is not None and peer.time_s > 0 and not row.doubt(name):
                ratios.setdefault(name, []).append((row.shown.time_s / peer.time_s, row.size_bytes))
    for name, found in ratios.items():
        slower = sum(ratio > _BEHIND for ratio, _ in found)
        ratio, size_bytes = max(found, key=lambda pair: pair[0])
        if slower:
            yield (
                "behind",
                f"slower than {name} at {slower} of {plural(len(found), 'size')}, most at "
                f"{about(size_bytes)}: {ratio:.2f} times its time",
            )
