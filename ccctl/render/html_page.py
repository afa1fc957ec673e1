"""Artifacts as one page of HTML: findings first, then the pictures with their numbers, then the files.

Every picture is included for a wide and for a narrow screen, and the style sheet shows one of them. The page
has no script, and its content policy forbids the browser to load anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ccctl.render.finding import bench_bounds, unproven
from ccctl.render.svg import NARROW, STYLE, WIDE, Drawing, draw, element
from ccctl.render.units import about, percent, seconds
from probes.base import as_attribute, as_content, plural, without_domain
from synth.schedules import SCHEDULE_KINDS

if TYPE_CHECKING:
    from ccctl.artifacts import Artifact
    from ccctl.render import ArtifactFinding
    from ccctl.render.svg import Bounds
    from exec.benchmark import Report
    from probes.link_costs import Profile
    from synth.schedules import Outcome

__all__ = [
    "HtmlTable",
    "PageSection",
    "anchor",
    "document",
    "menu",
    "page",
    "section_html",
    "sections",
    "table_html",
    "tables",
]

# Bounds below this share of the binding one say nothing about a schedule.
_OF_USE = 0.5
_STYLE = """
:root{color-scheme:light dark;--ink:#222;--faint:#5f6368;--paper:#fff;--soft:#f0f1f3;--line:#d0d4d9;
--alarm:#b3261e;--alarm-soft:#fdecea;--good:#1b6e3c;--link:#0b57a4}
@media screen and (prefers-color-scheme:dark){:root{--ink:#e8eaed;--faint:#a5abb3;--paper:#16181c;
--soft:#262a30;--line:#3c4249;--alarm:#ff8a80;--alarm-soft:#3a1d1b;--good:#7bd39b;--link:#8ab8f0}}
*{box-sizing:border-box}
body{margin:0 auto;padding:16px;max-width:992px;background:var(--paper);color:var(--ink);
font:15px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}
h1{font-size:22px;margin:0 0 4px}h2{font-size:19px;margin:36px 0 8px;border-bottom:1px solid var(--line)}
h3{font-size:16px;margin:20px 0 4px}p{margin:4px 0}a{color:var(--link)}
a:focus-visible,summary:focus-visible,.scroll:focus-visible{outline:3px solid var(--link);outline-offset:2px}
.skip{position:absolute;left:-9999px}.skip:focus{position:static}
nav ul{display:flex;flex-wrap:wrap;gap:4px 18px;padding:0;margin:12px 0;list-style:none}
.faint{color:var(--faint)}
.findings{padding:0;margin:12px 0;list-style:none}
.findings li{border-left:5px solid var(--line);background:var(--soft);padding:8px 12px;margin:8px 0}
.findings li.severe{border-color:var(--alarm);background:var(--alarm-soft)}
.findings li.severe:first-child{font-size:18px}
.findings b{text-transform:uppercase;font-size:12px;letter-spacing:.05em;color:var(--faint)}
.findings .severe b{color:var(--alarm)}
.good{border-left:5px solid var(--good);background:var(--soft);padding:8px 12px}
figure{margin:16px 0}figcaption{font-weight:600;margin-bottom:6px}
figure svg{display:block;max-width:100%;height:auto}.narrow{display:none}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:13px;overflow-wrap:normal}
th,td{text-align:left;padding:3px 12px 3px 0;border-bottom:1px solid var(--line);white-space:nowrap}
.files td:first-child,.files td:last-child,.files th{white-space:normal;overflow-wrap:anywhere}
.files table{width:100%}.files td:first-child{min-width:9em}
summary{cursor:pointer;color:var(--link)}
@media screen and (max-width:760px){.wide{display:none}.narrow{display:block;max-width:480px}}
@media print{body{max-width:none;padding:0;font-size:11px}nav,.skip{display:none}
figure,li,tr{break-inside:avoid}h2,h3,.source,figcaption{break-after:avoid}.scroll{overflow:visible}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_WORDS = {
    "dead": "dead host",
    "fault": "fault",
    "wrong": "wrong result",
    "slow": "slow",
    "unproven": "not proven",
    "incomplete": "incomplete",
    "unread": "not readable",
    "doubtful": "doubtful",
    "behind": "behind the library",
}
# The order of the sections on the page.
_SECTIONS = {
    "certificate": "Acceptance",
    "profile": "Links",
    "topology": "Machines",
    "health": "Machines",
    "samples": "Links",
    **dict.fromkeys(SCHEDULE_KINDS, "Schedules"),
    "program": "Programs",
    "report": "Benchmarks",
    "history": "Watch",
    "training": "Training",
    "groups": "Training",
    "fusion": "Training",
    "model": "Training",
    "tuning": "Training",
}


# The most links in a table: they grow with the square of the ranks, and readers look for the slowest.
_MOST_LINKS = 40


@dataclass(frozen=True)
class HtmlTable:
    """Numbers behind a picture: a title, the columns' names with units, and rows of text."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class PageSection:
    """One artifact on the page: a heading, its file, pictures wide and narrow, and tables."""

    section: str
    title: str
    source: str
    wide: tuple[Drawing, ...]
    narrow: tuple[Drawing, ...]
    tables: tuple[HtmlTable, ...]


def page(
    title: str,
    made: str,
    findings: Sequence[ArtifactFinding],
    parts: Sequence[PageSection],
    files: Sequence[Sequence[str]],
) -> str:
    """Return the HTML; ``files`` are rows of (file, kind, digest or why it could not be read)."""
    names = list(dict.fromkeys(part.section for part in parts))
    table = HtmlTable("Files", ("file", "kind", "sha256, or why not read"), tuple(map(tuple, files)))
    return document(
        title,
        [
            "<a class='skip' href='#findings'>Skip to the findings</a>",
            f"<header><h1>{as_content(title)}</h1><p class='faint'>{as_content(made)}</p></header>",
            "<main>",
            *_findings(findings),
            menu(["Findings", *names, "Files"]),
            *section_html(parts),
            f"<section id='files' class='files'><h2>Files</h2>{table_html(table)}</section></main>",
        ],
    )


def document(title: str, body: Iterable[str], style: str = "") -> str:
    """Return a page of the project's style and ``style`` that loads nothing."""
    head = (
        "<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'>"
        f"<meta http-equiv='Content-Security-Policy' content={as_attribute(_POLICY)}>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{as_content(title)}</title><style>{_STYLE}{STYLE}{style}</style></head><body>"
    )
    return "\n".join([head, *body, "</body></html>\n"])


def menu(names: Iterable[str]) -> str:
    """Return links to the sections of these names."""
    links = "".join(f"<li><a href='#{anchor(name)}'>{as_content(name)}</a></li>" for name in names)
    return f"<nav aria-label='Sections'><ul>{links}</ul></nav>"


def section_html(parts: Sequence[PageSection]) -> Iterable[str]:
    """Yield each section with its pictures and numbers."""
    for name in dict.fromkeys(part.section for part in parts):
        yield f"<section id='{anchor(name)}'><h2>{as_content(name)}</h2>"
        for part in parts:
            if part.section == name:
                yield from _part(part)
        yield "</section>"


def sections(artifacts: Sequence[Artifact]) -> list[PageSection]:
    """Return the pictures and tables of each artifact, in the order of the page's sections.

    Artifacts that are not proven or have no picture are left out.
    """
    order = list(_SECTIONS)
    parts = []
    for one in sorted(artifacts, key=lambda artifact: order.index(artifact.kind)):
        if unproven(one):
            continue
        bounds_s = bench_bounds(one.body, artifacts) if one.kind == "report" else {}
        wide, narrow = (tuple(draw(one.kind, one.body, width, bounds_s)) for width in (WIDE, NARROW))
        if wide:
            shown_tables = tuple(tables(one.kind, one.body, bounds_s))
            parts.append(PageSection(_SECTIONS[one.kind], one.kind, one.source, wide, narrow, shown_tables))
    return parts


def anchor(section: str) -> str:
    """Return the id of the section of this name."""
    return section.lower().replace(" ", "-")


def _findings(findings: Sequence[ArtifactFinding]) -> Iterable[str]:
    yield "<section id='findings' aria-label='Findings'>"
    if findings:
        severe = sum(finding.severe for finding in findings)
        yield f"<h2>{plural(len(findings), 'finding')}, {severe} of them severe</h2>"
        yield "<ol class='findings'>"
        for finding in findings:
            name = " class='severe'" if finding.severe else ""
            yield (
                f"<li{name}><b>{_WORDS[finding.what]}</b> {as_content(finding.text)} "
                f"<span class='faint'>({as_content(finding.source)})</span></li>"
            )
        yield "</ol>"
    else:
        yield "<h2>Findings</h2><p class='good'>None: nothing is wrong, slow or doubtful in these files.</p>"
    yield "</section>"


def _part(part: PageSection) -> Iterable[str]:
    yield f"<h3>{as_content(part.title)}</h3><p class='faint source'>{as_content(part.source)}</p>"
    for wide, narrow in zip(part.wide, part.narrow, strict=True):
        yield f"<figure><figcaption>{as_content(wide.title)}</figcaption>"
        yield f"<div class='wide'>{element(wide)}</div><div class='narrow'>{element(narrow)}</div></figure>"
    for table in part.tables:
        yield f"<details><summary>Numbers: {as_content(table.title)}</summary>{table_html(table)}</details>"


def table_html(table: HtmlTable) -> str:
    """Return the table in a region that scrolls where the screen is narrower."""
    heads = "".join(f"<th scope='col'>{as_content(name)}</th>" for name in table.columns)
    rows = "".join(
        "<tr>" + "".join(f"<td>{as_content(cell)}</td>" for cell in row) + "</tr>" for row in table.rows
    )
    return (
        f"<div class='scroll' tabindex='0' role='region' aria-label={as_attribute(table.title)}>"
        f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def tables(kind: str, body: Any, bounds_s: Bounds) -> list[HtmlTable]:
    """Return the numbers behind the pictures of an artifact; most kinds have none."""
    if kind == "profile":
        return [_links(body)]
    if kind == "report":
        return [_rows(body, bounds_s)]
    return [_outcome(body.outcome)] if kind in SCHEDULE_KINDS and body.outcome is not None else []


# The flags of a link in words.
_FLAG_WORDS = {
    "slow_sender": "slow sender",
    "slow_receiver": "slow receiver",
    "slow_trunk": "slow trunk",
    "outlier": "slow",
    "late": "high latency",
    "lossy": "loses packets",
    "slow_cpu": "slow CPU",
    "asymmetric": "unlike the way back",
    "nonlinear": "time not even in size",
    "noisy": "unsteady",
    "unsound": "no valid fit",
    "retested": "measured a second time, alone",
    "contended": "faster alone",
    "preempted": "waited for a core",
    "starved": "waited for a core",
    "inferred": "not measured",
}


def _links(profile: Profile) -> HtmlTable:
    links = profile.links
    short = without_domain([entry.host for entry in profile.ranks])
    names = [f"{rank} {short[entry.host]}" for rank, entry in enumerate(profile.ranks)]
    slowest, count = np.argsort(-links.beta_s_per_byte, kind="stable")[:_MOST_LINKS].tolist(), len(links.src)
    rows = tuple(
        (
            names[links.src[row]],
            names[links.dst[row]],
            f"{1e-9 / links.beta_s_per_byte[row]:.3g}",
            f"{1e-9 / links.beta_median_s_per_byte[row]:.3g}",
            seconds(float(links.alpha_s[row])),
            ", ".join(dict.fromkeys(_FLAG_WORDS.get(word, word) for word in links.flags[row].split(","))),
        )
        for row in slowest
    )
    title = f"the {len(slowest)} slowest of {count} links" if count > _MOST_LINKS else f"all {count} links"
    return HtmlTable(
        title,
        ("sender", "receiver", "GB/s", "median of samples, GB/s", "alpha", "remarks"),
        rows,
    )


def _rows(report: Report, bounds_s: Bounds) -> HtmlTable:
    peers = list(dict.fromkeys(name for row in report.rows for name in row.peers))
    found = []
    chosen = any(": " in row.program for row in report.rows)
    for row in report.rows:
        shown = row.shown
        if shown is None:
            continue
        bound_s = bounds_s.get((row.collective, row.size_bytes))
        others = [row.peers.get(name) for name in peers]
        found.append(
            (
                row.collective,
                about(row.size_bytes),
                row.dtype,
                seconds(shown.time_s),
                f"{shown.busbw_gbs:.3g}",
                "not checked" if shown.wrong is None else str(shown.wrong),
                seconds(row.predicted_s) if row.predicted_s is not None else "",
                _of_bound(bound_s, shown.time_s),
                *([_method_words(row.program)] if chosen else ()),
                *(seconds(peer.time_s) if peer else "" for peer in others),
            )
        )
    columns = ("collective", "size", "type", "time", "bus GB/s", "wrong", "predicted", "of the bound")
    method = ("method",) if chosen else ()
    return HtmlTable("all rows", (*columns, *method, *peers), tuple(found))


def _of_bound(bound_s: float | None, time_s: float) -> str:
    """Return the bound as a share of a time; a share above 100 % says that the bound does not hold."""
    if not bound_s or not time_s:
        return ""
    share = percent(bound_s / time_s)
    return f"{share}: impossible, the links were measured too slow" if bound_s > 1.0005 * time_s else share


def _method_words(program: str) -> str:
    """Return the method after the colon of a program's name, and what it does."""
    from ccctl.render.text import synthesis

    method = program.partition(": ")[2]
    return f"{method}: {synthesis.METHODS[method]}" if method in synthesis.METHODS else method


def _outcome(outcome: Outcome) -> HtmlTable:
    optimal = percent(outcome.percent_of_optimal / 100)
    rows = [(seconds(outcome.time_s), f"simulated, {optimal} of optimal")]
    rows += [
        (seconds(bound.time_s), ", ".join(filter(None, (f"bound: {bound.name}", bound.detail))))
        for bound in outcome.bounds
        if bound.time_s >= _OF_USE * outcome.binding.time_s > 0
    ]
    # Times come first, so that a narrow screen shows them.
    return HtmlTable("time and bounds", ("time", "what"), tuple(rows))
