"""The wording of an acceptance that the text, the page and the files for other tools share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from ccctl.render.fields import Column
from ccctl.render.units import about, percent, seconds
from probes.base import plural, some

if TYPE_CHECKING:
    from exec.acceptance import Certificate, Changes, Culprit, FaultCost, Spares, WholeRow
    from exec.benchmark import Integrity

__all__ = [
    "change_lines",
    "cost_text",
    "cost_texts",
    "headline",
    "integrity_notes",
    "is_in_hosts",
    "moments",
    "of_host",
    "row_name",
    "sentence",
    "size_text",
    "skipped_groups",
    "spares_text",
    "surely",
    "whole_columns",
    "whole_notes",
]

# Culprits of these kinds lie between hosts: none of their hosts is at fault by itself.
_BETWEEN_HOSTS = frozenset(("pair", "one_way_pair", "trunk", "fabric", "corrupt_link", "core"))
# A smaller share above the bound would be printed as 100.0 %.
_EXACT = 0.0005
# The most culprits or hosts that a line about changes names.
_MOST_NAMED = 6


def headline(certificate: Certificate) -> str:
    """Return the verdict in one line: "refused: 2 faults on 2 of 12 hosts"."""
    reason = certificate.reason or _counts(certificate)
    return reason if reason.startswith(certificate.verdict) else f"{certificate.verdict}: {reason}"


def _counts(certificate: Certificate) -> str:
    """Return the number of faults, or of remarks if there is no fault, and of their hosts."""
    for severity in ("fault", "remark"):
        found = [culprit for culprit in certificate.culprits if culprit.severity == severity]
        if found:
            hosts = {host for one in found for host in one.hosts}
            where = f" on {len(hosts)} of {plural(len(certificate.tested), 'host')}" if hosts else ""
            return f"{plural(len(found), severity)}{where}"
    return f"nothing found on {plural(len(certificate.tested), 'host')}"


def sentence(culprit: Culprit) -> str:
    """Return what is wrong in a sentence that names the part and its host."""
    if culprit.part in culprit.text:
        return culprit.text
    host = next((one for one in culprit.hosts if culprit.part.startswith(f"{one} ")), "")
    device = culprit.part.removeprefix(f"{host} ")
    return f"{host if host and device in culprit.text else culprit.part}: {culprit.text}"


def surely(culprit: Culprit) -> str:
    """Return the severity in a few words: "fault", "likely fault", "remark, not confirmed"."""
    if culprit.sure == "possible":
        return f"{culprit.severity}, not confirmed"
    return culprit.severity if culprit.sure == "certain" else f"{culprit.sure} {culprit.severity}"


def is_in_hosts(culprit: Culprit) -> bool:
    """Return whether the culprit is a part of its hosts, and not of the network between them."""
    return culprit.kind not in _BETWEEN_HOSTS


def of_host(certificate: Certificate, host: str) -> list[Culprit]:
    """Return the culprits that are a part of this host, the worst first."""
    return [culprit for culprit in certificate.culprits if host in culprit.hosts and is_in_hosts(culprit)]


def cost_texts(culprit: Culprit) -> list[str]:
    """Return the cost of a culprit for ccctl's schedule, and for the library, as far as they are known."""
    return [cost_text(cost) for cost in (culprit.cost, culprit.library_cost) if cost is not None]


def cost_text(cost: FaultCost) -> str:
    """Return the cost of a culprit: the time of a collective now, and once the part is repaired."""
    kind = f"{'an' if cost.collective[:1] in 'aeiou' else 'a'} {cost.collective}"
    now, without = seconds(cost.with_s), seconds(cost.without_s)
    size, model, measured = size_text(cost.size_bytes), "by the model", ""
    if cost.measured:
        algorithm = f" ({cost.algorithm})" if cost.algorithm else ""
        size += f" by {cost.library or 'ccctl'}{algorithm}"
        measured = " (measured)"
    elif cost.algorithm:
        model = f"by the model of ccctl's schedule ({cost.algorithm})"
    if now == without:
        return f"{kind} of {size} takes {now} now{measured}, and no less once it is repaired, {model}"
    return f"{kind} of {size} takes {now} now{measured}, and {without} once it is repaired, {model}"


def size_text(size_bytes: int) -> str:
    """Return a size in binary units: 1 GiB, 512 bytes."""
    short = about(size_bytes)
    return f"{short[:-1]} {short[-1]}iB" if short[-1:].isalpha() else f"{short} bytes"


def spares_text(spares: Spares) -> str:
    """Return which hosts to leave out, and how fast the others are then."""
    hosts, total = list(spares.left_out), spares.kept + len(spares.left_out)
    named = f"{', '.join(hosts[:-1])} and {hosts[-1]}" if len(hosts) > 1 else "".join(hosts)
    if hosts:
        advice = f"leave out {named}: the other {spares.kept} of {plural(total, 'host')} reach"
    else:
        advice = f"no host needs to be left out: all {plural(total, 'host')} reach"
    return (
        f"{advice} {spares.percent:.0f} % of {spares.kept} sound hosts "
        f"({spares.collective} of {size_text(spares.size_bytes)}, by the model)"
    )


def skipped_groups(certificate: Certificate) -> dict[str, list[str]]:
    """Return the hosts that did not take part, by reason."""
    groups: dict[str, list[str]] = {}
    for host, reason in certificate.skipped.items():
        groups.setdefault(reason, []).append(host)
    return groups


def moments(certificate: Certificate) -> tuple[datetime, datetime] | None:
    """Return when the acceptance started and ended, in UTC; None if the certificate does not say."""
    started = _moment(certificate.started)
    try:
        took = timedelta(seconds=sum(max(0.0, stage.seconds) for stage in certificate.stages))
        return (started, started + took) if started else None
    except OverflowError:
        return None


def _moment(text: str) -> datetime | None:
    """Return the UTC time of an ISO 8601 text, None for other text; without a zone it is UTC."""
    try:
        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _share(bound_s: float | None, time_s: float) -> str | None:
    return percent(bound_s / time_s) if bound_s and time_s > 0 else None


# The columns of the table of collectives, with names short enough for 80 characters. A page has room for the
# bounds themselves, too.
_WHOLE_COLUMNS = (
    Column("collective", "collective"),
    Column("size", "size_bytes", size_text),
    Column("library", "library"),
    Column("time", "time_s"),
    Column("algbw", lambda row: row.algbw_gbs or None, "{:.4g}"),
    Column("busbw", lambda row: row.busbw_gbs or None, "{:.4g}"),
    Column("bound", "bound_s"),
    Column("of bound", lambda row: _share(row.bound_s, row.time_s)),
    Column("bought", "bought_bound_s"),
    Column("of bought", lambda row: _share(row.bought_bound_s, row.time_s)),
    Column("wrong", lambda row: "unchecked" if row.wrong is None else row.wrong),
)
# A row of ranks that waited for cores has no bound.
_UNRELIABLE = Column("reliable", lambda row: "yes" if row.bound_s is not None else "no: cores")
_ONLY_WIDE = ("bound", "bought")
# A column without other cells than these is left out.
_SAYS_NOTHING = {"wrong": ("-", "0", "unchecked")}


def whole_columns(certificate: Certificate, *, wide: bool = False) -> list[Column]:
    """Return the columns with a value in at least one row; with ``wide`` also columns that only pages show.

    The last column marks the rows of a run in which ranks waited for cores.
    """
    found = certificate.whole
    columns = [one for one in _WHOLE_COLUMNS if wide or one.head not in _ONLY_WIDE]
    crowded = any(culprit.kind == "crowded" for culprit in certificate.culprits)
    return [
        column
        for column in columns
        if any(column.cell(row) not in _SAYS_NOTHING.get(column.head, ("-",)) for row in found)
    ] + [_UNRELIABLE] * crowded


def _beaten(rows: Iterable[WholeRow]) -> Iterator[str]:
    """Yield a note on the rows that are faster than a bound, which then does not hold."""
    for row in rows:
        for bound_s, network in ((row.bound_s, "measured"), (row.bought_bound_s, "bought")):
            if bound_s and 0 < row.time_s < bound_s * (1 - _EXACT):
                why = (
                    "links were faster than they were measured, so the bound is void"
                    if network == "measured"
                    else "this is another network than what was bought"
                )
                yield f"{row_name(row)} is above 100 % of the bound of the network as {network}: {why}"


def whole_notes(rows: Iterable[WholeRow], columns: Sequence[Column]) -> Iterator[str]:
    """Yield notes on the table of collectives: units, the meaning of 100 %, and whether results are right."""
    rows = tuple(rows)
    heads = {column.head for column in columns}
    yield from _beaten(rows)
    if _UNRELIABLE.head in heads:
        yield "`no: cores`: ranks waited for cores, so these times do not say which library is faster"
    if "algbw" in heads:
        yield "algbw, busbw: GB/s as nccl-tests defines them"
    for head, network in (("of bound", "this network as it is"), ("of bought", "the network as bought")):
        if head in heads:
            yield f"{head}: 100 % is the proven bound for {network}; a dash where none is known"
    if "wrong" not in heads:
        unchecked = any(row.wrong is None for row in rows)
        yield "results: some were not checked" if unchecked else "results: every element is right"


def integrity_notes(integrity: Integrity | None) -> Iterator[str]:
    """Yield what was compared to see whether data is corrupted, and with which result."""
    if integrity is None:
        return
    what = f"{integrity.collective} of {size_text(integrity.size_bytes)} on random numbers"
    same = [name for name in integrity.runs if name not in integrity.unlike]
    if same:
        yield f"run twice, with the same bits both times ({what}): {', '.join(same)}"
    if integrity.unlike:
        yield f"run twice, with other bits the second time ({what}): {', '.join(integrity.unlike)}"
    if not integrity.steps:
        yield f"checksums: not compared: {integrity.why_not}"
    elif not integrity.corruptions:
        steps = f"each of the {integrity.steps:,} steps of ccctl's program"
        yield f"checksums: in both runs, {steps} had the right data"
    else:
        wrong = sum(corruption.steps for corruption in integrity.corruptions)
        yield f"checksums: wrong data begins in {wrong:,} of the {integrity.steps:,} steps of ccctl's program"


def change_lines(changes: Changes) -> Iterator[tuple[str, str]]:
    """Yield the changes since an earlier acceptance as (word, sentence), the verdict first."""
    begun = _moment(changes.started_before)
    since = f" of {begun:%Y-%m-%d %H:%M} UTC" if begun else " before"
    if changes.verdict == changes.verdict_before:
        yield "verdict", f"{changes.verdict}, as in the acceptance{since}"
    else:
        yield "verdict", f"{changes.verdict}; it was {changes.verdict_before} in the acceptance{since}"
    # The present culprits are described in full elsewhere.
    for word, found in (("new", changes.new), ("still there", changes.standing)):
        for culprit in found:
            yield word, f"{culprit.part} ({surely(culprit)})"
    for word, found in (("gone", changes.gone), ("not tested", changes.untested)):
        for culprit in found:
            yield word, f"{surely(culprit)}: {sentence(culprit)}"
    for word, rows in (("slower", changes.slower), ("faster", changes.faster)):
        for row in rows:
            yield word, f"{row_name(row.now)}: {seconds(row.now.time_s)}, was {seconds(row.before.time_s)}"
    if changes.unreliable:
        yield "not compared", "times of collectives: in one of the two or both, ranks waited for cores"
    for sizes, when in ((changes.sizes_now_only, "before"), (changes.sizes_before_only, "now")):
        if sizes:
            yield "not compared", f"{', '.join(map(size_text, sizes))}: not measured {when}"
    if changes.ranks != changes.ranks_before:
        yield "ranks", f"{changes.ranks}, were {changes.ranks_before}"
    for word, names in (("hosts new", changes.hosts_new), ("hosts gone", changes.hosts_gone)):
        if names:
            yield word, some(names, _MOST_NAMED)
    for stage in changes.stages_missing:
        yield "not done", f"{stage}: done before and not now, so its culprits may be gone unseen"
    if changes.none:
        yield "same", "nothing else changed" if changes.standing else "nothing changed"


def row_name(row: WholeRow) -> str:
    """Return a collective with its size and its library."""
    return f"{row.collective} of {size_text(row.size_bytes)} by {row.library}"
