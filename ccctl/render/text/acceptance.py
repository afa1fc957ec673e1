"""An acceptance as text: the verdict, the culprits, the collectives; and as the object of ``--json``."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ccctl import console
from ccctl.render import Column, acceptance, cells, figures
from exec.launcher import fold
from probes.base import plural, visible

if TYPE_CHECKING:
    from exec.acceptance import Certificate, Changes, Culprit, WholeRow

__all__ = ["draw", "lines", "summary"]

# Width of the column with the names of a culprit's lines, such as evidence.
_NAMES = 10
# The most culprits to print, about three screens. The page has all of them.
_MOST_CULPRITS = 30
_STAGES = (
    Column("stage", "label"),
    Column("took", "seconds", lambda value_s: f"{value_s:.1f} s"),
    Column("", "done", lambda done: "" if done else "not done"),
)


def draw(certificate: Certificate, changes: Changes | None = None, written: Sequence[str] = ()) -> None:
    """Print the certificate, wrapped to the terminal if there is one."""
    for line in lines(certificate, console.width(), changes, written):
        console.data(line)


def lines(
    certificate: Certificate,
    width: int | None = None,
    changes: Changes | None = None,
    written: Sequence[str] = (),
) -> Iterator[str]:
    """Yield the lines: the verdict first, then the culprits, the worst first, then all that was measured.

    Sentences are wrapped to ``width`` characters, None leaves them whole. ``changes`` compare it with an
    earlier acceptance. ``written`` has a line about each file that was written.
    """
    yield from _wrapped("", acceptance.headline(certificate), width)
    for number, culprit in enumerate(certificate.culprits[:_MOST_CULPRITS], start=1):
        yield ""
        yield from _culprit(number, culprit, width)
    if (more := len(certificate.culprits) - _MOST_CULPRITS) > 0:
        yield from (
            "",
            f"… and {plural(more, 'more culprit')}: the certificate and its page have all of them",
        )
    for heading, block in (
        ("since the last acceptance", _changes(changes, width) if changes else ()),
        (f"collectives on {plural(certificate.ranks, 'rank')}", _whole(certificate, width)),
        ("spares", _list(map(acceptance.spares_text, certificate.spares), width)),
        ("hosts", _hosts(certificate, width)),
        ("could not be read", _named(certificate.unread.items(), width)),
        ("stages", _stages(certificate, width)),
        ("files written", _list(written, width)),
    ):
        if found := list(block):
            yield from ("", heading, *found)


def _culprit(number: int, culprit: Culprit, width: int | None) -> Iterator[str]:
    yield visible(f"{number}. {acceptance.surely(culprit)}: {culprit.part}")
    yield from _wrapped("   ", culprit.text, width)
    for words in acceptance.cost_texts(culprit):
        yield from _line("cost", words, width)
    if culprit.remedy:
        yield from _line("to do", culprit.remedy, width)
    for at, words in enumerate(culprit.evidence):
        yield from _line("" if at else "evidence", words, width)


def _changes(changes: Changes, width: int | None) -> Iterator[str]:
    for word, words in acceptance.change_lines(changes):
        yield from _wrapped("  ", f"{word}: {words}", width)


def _whole(certificate: Certificate, width: int | None) -> Iterator[str]:
    if not certificate.whole:
        return
    columns = acceptance.whole_columns(certificate)
    for line in console.aligned(*cells(columns, certificate.whole)):
        yield f"  {line}"
    yield from _list(acceptance.whole_notes(certificate.whole, columns), width)
    yield from _list(acceptance.integrity_notes(certificate.integrity), width)


def _hosts(certificate: Certificate, width: int | None) -> Iterator[str]:
    tested = f": {fold(certificate.tested)}" if certificate.tested else ""
    yield from _wrapped("  ", f"{len(certificate.tested)} tested{tested}", width)
    for reason, hosts in acceptance.skipped_groups(certificate).items():
        yield from _wrapped("  ", f"{len(hosts)} skipped: {fold(hosts)}: {reason}", width)


def _stages(certificate: Certificate, width: int | None) -> Iterator[str]:
    if not certificate.stages:
        return
    for line in console.aligned(*cells(_STAGES, certificate.stages)):
        yield f"  {line}".rstrip()
    for stage in certificate.stages:
        for words in stage.left_out:
            yield from _wrapped("  ", f"{stage.label} left out: {words}", width)


def _named(pairs: Iterable[tuple[str, str]], width: int | None) -> Iterator[str]:
    for name, words in pairs:
        yield from _wrapped("  ", f"{name}: {words}", width)


def _list(entries: Iterable[str], width: int | None) -> Iterator[str]:
    for words in entries:
        yield from _wrapped("  ", words, width)


def _line(name: str, words: str, width: int | None) -> Iterator[str]:
    yield from _wrapped(f"   {name.ljust(_NAMES)}", words, width)


def _wrapped(indent: str, words: str, width: int | None) -> Iterator[str]:
    """Yield the words after ``indent``, in lines of ``width`` characters; a longer word stays whole."""
    words = visible(words)
    if width is None:
        yield f"{indent}{words}"
        return
    rest = " " * max(2, len(indent))
    yield from textwrap.wrap(
        words,
        width,
        initial_indent=indent,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [indent.rstrip()]


def summary(certificate: Certificate, changes: Changes | None = None) -> dict[str, Any]:
    """Return the object of ``--json``; it has ``since`` if there is an earlier acceptance."""
    severities = [culprit.severity for culprit in certificate.culprits]
    result = {
        **figures(certificate, "verdict reason ranks spec plan started seal"),
        "faults": severities.count("fault"),
        "remarks": severities.count("remark"),
        "seconds": sum(stage.seconds for stage in certificate.stages),
        **figures(certificate, "hosts_tested=tested hosts_skipped=skipped"),
        "culprits": [_culprit_summary(culprit) for culprit in certificate.culprits],
        "whole": [_whole_summary(row) for row in certificate.whole],
        "integrity": certificate.integrity
        and figures(
            certificate.integrity, "collective size_bytes seed runs unlike steps why_not corruptions"
        ),
        "spares": [
            figures(spare, "kept left_out percent_of_sound=percent collective size_bytes time_s sound_s")
            for spare in certificate.spares
        ],
        "stages": [figures(stage, "name seconds done left_out") for stage in certificate.stages],
        **figures(certificate, "unread files versions serials"),
    }
    return result if changes is None else result | {"since": _changes_summary(changes)}


def _culprit_summary(culprit: Culprit) -> dict[str, Any]:
    names = "collective size_bytes with_s without_s times algorithm library measured"
    costs = {"cost": culprit.cost, "library_cost": culprit.library_cost}
    return figures(culprit, "kind part hosts severity sure text remedy evidence") | {
        name: None if cost is None else figures(cost, names) for name, cost in costs.items()
    }


def _whole_summary(row: WholeRow) -> dict[str, Any]:
    names = "collective size_bytes library time_s algbw_gbs busbw_gbs bound_s bought_bound_s wrong"
    values = figures(row, names)
    for name, bound_s in (("bound", row.bound_s), ("bought", row.bought_bound_s)):
        values[f"percent_of_{name}"] = 100 * bound_s / row.time_s if bound_s and row.time_s > 0 else None
    return values


def _changes_summary(changes: Changes) -> dict[str, Any]:
    rows = (
        "collective=now.collective size_bytes=now.size_bytes library=now.library before_s=before.time_s "
        "now_s=now.time_s ratio"
    )
    return {
        **figures(
            changes,
            "verdict_before started_before hosts_new hosts_gone stages_missing times_unreliable=unreliable "
            "sizes_now_only sizes_before_only",
        ),
        **{
            name: [figures(one, "kind part hosts severity text") for one in getattr(changes, name)]
            for name in ("new", "gone", "untested", "standing")
        },
        **{name: [figures(one, rows) for one in getattr(changes, name)] for name in ("slower", "faster")},
    }
