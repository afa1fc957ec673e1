"""An acceptance as one self-contained page of HTML: the verdict first, then the culprits.

The page has the style, the pictures and the content policy of the page of a report (`html_page`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ccctl.render.acceptance import (
    change_lines,
    cost_text,
    headline,
    integrity_notes,
    moments,
    of_host,
    sentence,
    skipped_groups,
    spares_text,
    surely,
    whole_columns,
    whole_notes,
)
from ccctl.render.fields import cells
from ccctl.render.html_page import HtmlTable, anchor, document, menu, section_html, sections, table_html
from ccctl.render.units import seconds
from exec.launcher import fold
from probes.base import as_content, plural

if TYPE_CHECKING:
    from ccctl.artifacts import Artifact
    from exec.acceptance import Certificate, Changes, Culprit, FaultCost

__all__ = ["page"]

# The pictures of other artifacts show how something was planned, and not how the cluster is.
_SHOWN = ("profile", "report")
_CLASSES = {"accepted": "well", "accepted with remarks": "mixed", "refused": "bad", "undecided": "open"}
_STYLE = """
:root{--amber:#8a5a00;--amber-soft:#fff4dc;--good-soft:#e6f4ec}
@media screen and (prefers-color-scheme:dark){:root{--amber:#f2c25b;--amber-soft:#352a13;--good-soft:#16301f}}
.verdict{border-left:10px solid var(--line);background:var(--soft);padding:18px 20px;margin:0 0 12px}
.verdict h1{font-size:32px;line-height:1.2;margin:0 0 6px}.verdict p{font-size:17px}
.verdict p.faint{font-size:14px;margin-top:8px}
.verdict.bad{border-color:var(--alarm);background:var(--alarm-soft)}.bad h1{color:var(--alarm)}
.verdict.well{border-color:var(--good);background:var(--good-soft)}.well h1{color:var(--good)}
.verdict.mixed{border-color:var(--amber);background:var(--amber-soft)}.mixed h1{color:var(--amber)}
.cards{padding:0;margin:12px 0;list-style:none}
.cards>li{border:1px solid var(--line);border-left:6px solid var(--amber);padding:12px 16px;margin:12px 0}
.cards>li.fault{border-left-color:var(--alarm)}
.cards h3{margin:0 0 4px;font-size:18px}
.badge{font-size:12px;font-weight:700;text-transform:uppercase;letter-spacing:.05em;margin-right:8px;
color:var(--amber)}.fault .badge{color:var(--alarm)}
.cost{margin:10px 0;max-width:640px}
.bar{display:grid;grid-template-columns:84px 1fr 72px;gap:8px;align-items:center;font-size:13px;margin:3px 0}
.bar i{display:block;height:14px;min-width:2px;background:var(--link)}.bar.now i{background:var(--amber)}
.fault .bar.now i{background:var(--alarm)}
.do{margin:8px 0}.evidence{margin:6px 0;padding-left:20px}
.long td{vertical-align:top}
.long td:first-child,.long td:last-child{white-space:normal;overflow-wrap:anywhere}
.long td:first-child{min-width:5em;max-width:16em}
pre{background:var(--soft);padding:8px 12px;white-space:pre-wrap}
@media screen and (max-width:760px){.verdict{padding:14px}.verdict h1{font-size:27px}
.bar{grid-template-columns:70px 1fr 64px}}
@media print{.cards>li{break-inside:avoid}}
"""


def page(
    certificate: Certificate,
    artifacts: Sequence[Artifact] = (),
    changes: Changes | None = None,
    *,
    made: str = "",
    file: str = "certificate.json",
) -> str:
    """Return the HTML of a certificate.

    ``artifacts`` are the measurements that the certificate was computed from; only a profile and a report are
    drawn. ``changes`` compare it with an earlier acceptance. ``made`` says which ccctl made the page, and
    when. ``file`` is the name of the certificate beside the page.
    """
    parts = sections([artifact for artifact in artifacts if artifact.kind in _SHOWN])
    blocks = {
        "Culprits": _culprits(certificate),
        "Changes": _changes(changes) if changes else (),
        "Collectives": _whole(certificate),
        "Spares": _list(map(spares_text, certificate.spares)),
        "Hosts": _hosts(certificate),
        "Could not be read": _unread(certificate),
        "Stages": _stages(certificate),
    }
    written = {name: "".join(block) for name, block in blocks.items()}
    pictures = list(dict.fromkeys(part.section for part in parts))
    names = [*(name for name, block in written.items() if block), *pictures, "Proof"]
    return document(
        f"ccctl accept: {headline(certificate)}",
        [
            "<a class='skip' href='#culprits'>Skip to the culprits</a>",
            *_verdict(certificate),
            "<main>",
            menu(names),
            *(_section(name, block) for name, block in written.items() if block),
            *section_html(parts),
            _section("Proof", "".join(_proof(certificate, made, file))),
            "</main>",
        ],
        _STYLE,
    )


def _section(name: str, block: str) -> str:
    return f"<section id='{anchor(name)}'><h2>{as_content(name)}</h2>{block}</section>"


def _verdict(certificate: Certificate) -> Iterator[str]:
    """Yield the verdict with its reason, then the cluster that it is about."""
    name = _CLASSES[certificate.verdict]
    reason = headline(certificate).removeprefix(certificate.verdict).lstrip(": ")
    about = [
        f"{plural(len(certificate.tested), 'host')} tested",
        f"{len(certificate.skipped)} skipped" if certificate.skipped else "",
        plural(certificate.ranks, "rank"),
        f"against {certificate.spec}" if certificate.spec else "",
        f"plan {certificate.plan}" if certificate.plan else "",
    ]
    if span := moments(certificate):
        about.append(f"{span[0]:%Y-%m-%d %H:%M} UTC")
    if took_s := sum(stage.seconds for stage in certificate.stages):
        about.append(f"took {_minutes(took_s)}")
    yield f"<header class='verdict {name}'><h1>{as_content(_capital(certificate.verdict))}</h1>"
    yield f"<p>{as_content(_capital(reason))}</p>"
    yield f"<p class='faint'>{as_content(', '.join(filter(None, about)))}</p></header>"


def _minutes(took_s: float) -> str:
    whole_s = round(took_s)
    return f"{whole_s // 60} min {whole_s % 60} s" if whole_s >= 60 else f"{took_s:.1f} s"


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _culprits(certificate: Certificate) -> Iterator[str]:
    if not certificate.culprits:
        yield "<p class='good'>None: every part that was tested is as it should be.</p>"
        return
    yield "<ol class='cards'>"
    for culprit in certificate.culprits:
        yield from _card(culprit)
    yield "</ol>"


def _card(culprit: Culprit) -> Iterator[str]:
    yield f"<li class='{culprit.severity}'><h3><span class='badge'>{as_content(surely(culprit))}</span>"
    yield f"{as_content(culprit.part)}</h3><p>{as_content(culprit.text)}</p>"
    for cost in (culprit.cost, culprit.library_cost):
        if cost is not None:
            yield from _cost(cost)
    if culprit.remedy:
        yield f"<p class='do'><b>To do:</b> {as_content(culprit.remedy)}</p>"
    if culprit.evidence:
        lines = "".join(f"<li>{as_content(words)}</li>" for words in culprit.evidence)
        # A single line takes no more room than its fold.
        shown = " open" if len(culprit.evidence) == 1 else ""
        yield f"<details{shown}><summary>Evidence ({len(culprit.evidence)})</summary>"
        yield f"<ul class='evidence'>{lines}</ul></details>"
    yield "</li>"


def _cost(cost: FaultCost) -> Iterator[str]:
    """Yield the cost in words, and a bar for the time now and one for the time without the culprit."""
    longest = max(cost.with_s, cost.without_s)
    yield f"<div class='cost'><p>{as_content(_capital(cost_text(cost)))}</p>"
    for name, label, time_s in (("now", "now", cost.with_s), ("sound", "repaired", cost.without_s)):
        share = 100 * max(0.0, time_s) / longest if longest > 0 else 0.0
        bar = f"<span><i style='width:{share:.1f}%'></i></span>"
        yield f"<div class='bar {name}'><span>{label}</span>{bar}<span>{seconds(time_s)}</span></div>"
    yield "</div>"


def _changes(changes: Changes) -> Iterator[str]:
    rows = tuple((word, words) for word, words in change_lines(changes))
    table = table_html(HtmlTable("changes since the last acceptance", ("change", "what"), rows))
    yield f"<div class='long'>{table}</div>"


def _whole(certificate: Certificate) -> Iterator[str]:
    if not certificate.whole:
        return
    columns = whole_columns(certificate, wide=True)
    heads, rows = cells(columns, certificate.whole)
    yield table_html(HtmlTable("collectives", tuple(heads), tuple(map(tuple, rows))))
    notes = (*whole_notes(certificate.whole, columns), *integrity_notes(certificate.integrity))
    yield from (f"<p class='faint'>{as_content(_capital(words))}</p>" for words in notes)


def _list(entries: Iterable[str]) -> Iterator[str]:
    yield from (f"<p>{as_content(words)}</p>" for words in entries)


def _hosts(certificate: Certificate) -> Iterator[str]:
    """Yield a table: hosts with culprits, grouped by them, then skipped hosts, then sound hosts."""
    groups: dict[tuple[Culprit, ...], list[str]] = {}
    for host in certificate.tested:
        groups.setdefault(tuple(of_host(certificate, host)), []).append(host)
    well = groups.pop((), [])
    rows = [
        (fold(hosts), surely(found[0]), " ".join(map(sentence, found))) for found, hosts in groups.items()
    ]
    rows += [(fold(hosts), "skipped", reason) for reason, hosts in skipped_groups(certificate).items()]
    if well:
        rows.append((fold(well), "ok", f"no fault on {plural(len(well), 'host')}"))
    if rows:
        table = table_html(HtmlTable("hosts", ("host", "state", "what was found"), tuple(rows)))
        yield f"<div class='long'>{table}</div>"


def _unread(certificate: Certificate) -> Iterator[str]:
    if certificate.unread:
        rows = tuple(certificate.unread.items())
        yield f"<div class='long'>{table_html(HtmlTable('not read', ('what', 'why'), rows))}</div>"


def _stages(certificate: Certificate) -> Iterator[str]:
    rows = tuple(
        (stage.label, f"{stage.seconds:.1f} s" if stage.done else "not done", "; ".join(stage.left_out))
        for stage in certificate.stages
    )
    if rows:
        table = table_html(HtmlTable("stages", ("stage", "took", "left out"), rows))
        yield f"<div class='long'>{table}</div>"


def _proof(certificate: Certificate, made: str, file: str) -> Iterator[str]:
    """Yield the command that checks the certificate, its seal, file digests and versions."""
    yield "<p>This page shows a certificate. Whether it and the files below are unchanged is checked by:</p>"
    yield f"<pre>ccctl verify {as_content(file)}</pre>"
    if certificate.seal:
        yield f"<p>Seal, the SHA-256 of the certificate without the seal: {as_content(certificate.seal)}</p>"
    for title, heads, pairs in (
        ("Files", ("file", "sha256"), certificate.files),
        ("Versions", ("software", "version"), certificate.versions),
        ("Serial numbers", ("part", "serial number or UUID"), certificate.serials),
    ):
        if pairs:
            table = table_html(HtmlTable(title, heads, tuple(pairs.items())))
            yield f"<div class='files'><h3>{title}</h3>{table}</div>"
    if made:
        yield f"<p class='faint'>{as_content(made)}</p>"
