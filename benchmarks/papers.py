"""Run every claim about the five papers again: one table, and the page docs/explanation/papers.md.

    python benchmarks/papers.py [FILTER] [--write] [--new] [--long] [--against]

docs/explanation/papers.json holds a row for each part of a paper: its place, the command that shows it, the
pattern of the figure in the output of the command, the figure of the last run, and the paper's figure. Rows
whose paper, place, words or command contain FILTER are run, and their figures compared: "same" within the
row's tolerance. Rows that take over a minute run only with --long. A row that needs a GPU, root for a lab,
torch or scikit-learn is left out where this is missing. --write stores figures, seconds and date, and makes
the page from them; with --new only rows without a figure run.

--against runs each published algorithm and ours on the same input, 30 seeds: see published_and_ours.py.
"""

from __future__ import annotations

import argparse
import datetime
import fcntl
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DATA, PAGE = ROOT / "docs/explanation/papers.json", ROOT / "docs/explanation/papers.md"
VERDICTS = ("faithful", "exceeded", "deviates", "missing")
# The sources of figures, the strongest first.
EVIDENCE = ("GPU", "lab", "CPUs", "kernel on host threads", "judge", "simulated", "formula", "none")
NEEDS = ("gpu", "lab", "torch", "sklearn")
SHORT_S = 60.0
# A row of less than a minute on an idle machine may take so long on a busy one.
LIMIT_S, LONG_LIMIT_S = 300.0, 3600.0
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
_INTRODUCTION = """\
# The five papers, row by row

What AdapCC, GC3, TACOS, DS-Sync and DeAR contain, where it is here, and what a run shows.
`python benchmarks/papers.py` runs the rows and compares; `--write` makes this page from `papers.json`.

**Faithful**: as the paper has it. **Exceeded**: that, and more. **Deviates**: something else serves the
purpose, or the figure is another; the row says why. **Missing**: not here, or not shown by a run. No row is
faithful or exceeded without a figure that its command printed.

Evidence says what a figure comes from: **GPU** (a GPU ran it), **lab** (network namespaces with shaped
links), **CPUs** (ranks on one host), **kernel on host threads** (the CUDA kernel's code on threads),
**judge** (a schedule or program that the checker replays and proves), **simulated** (the simulator's time, or
a replay), **formula** (computed from the paper's own formula).

*Here* is what the command printed last, *paper's* the
paper's figure; – where there is none.
"""


@dataclass(frozen=True)
class Row:
    """One part of a paper. ``pattern`` finds the figure in the output: its groups, joined by commas."""

    where: str
    shows: str
    code: tuple[str, ...]
    command: str
    pattern: str
    verdict: str
    evidence: str
    paper: str
    how: str
    within: float = 0.05
    long: bool = False
    needs: str = ""
    printed: str = ""
    seconds: float = 0.0
    date: str = ""

    @property
    def is_shown(self) -> bool:
        """Whether the verdict claims that a run shows it."""
        return self.verdict in ("faithful", "exceeded")


@dataclass(frozen=True)
class Paper:
    """A paper: its rows, and the objections that its authors would still have."""

    name: str
    title: str
    objections: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Result:
    """The output of a row's command; ``figure`` is None if the row's pattern is not in ``output``."""

    row: Row
    figure: str | None
    seconds: float
    output: str

    @property
    def outcome(self) -> str:
        """Return "same", "differs", "new" or "no figure"."""
        if self.figure is None:
            return "no figure"
        if not self.row.printed:
            return "new"
        return "same" if agrees(self.figure, self.row.printed, self.row.within) else "differs"


def load(path: Path = DATA) -> tuple[Paper, ...]:
    """Return the papers of the file."""
    found = json.loads(path.read_text())
    return tuple(
        Paper(
            one["name"],
            one["title"],
            one["objections"],
            tuple(Row(**{**row, "code": tuple(row["code"])}) for row in one["rows"]),
        )
        for one in found
    )


def store(papers: Sequence[Paper], path: Path = DATA) -> None:
    """Write the papers, and the page made from them."""
    defaults = {name: field.default for name, field in Row.__dataclass_fields__.items()}
    found = [asdict(paper) for paper in papers]
    for one in found:
        one["rows"] = [
            {name: value for name, value in row.items() if value != defaults[name]} for row in one["rows"]
        ]
    texts = {path: json.dumps(found, indent=1, ensure_ascii=False) + "\n", PAGE: page(papers)}
    for place, text in texts.items():
        new = place.with_suffix(".new")
        new.write_text(text)
        new.replace(place)


def agrees(figure: str, printed: str, within: float) -> bool:
    """Return whether the words are equal, and all numbers within the share ``within`` of the printed ones."""
    if _NUMBER.sub("#", figure) != _NUMBER.sub("#", printed):
        return False
    pairs = zip(_NUMBER.findall(figure), _NUMBER.findall(printed), strict=True)
    return all(abs(float(now) - float(then)) <= within * abs(float(then)) + 1e-12 for now, then in pairs)


def is_possible(row: Row) -> bool:
    """Return whether this machine has the needs of a row, words of `NEEDS`."""
    found = {
        "gpu": shutil.which("nvidia-smi") is not None,
        "lab": os.geteuid() == 0 and shutil.which("tc") is not None,
        "torch": importlib.util.find_spec("torch") is not None,
        "sklearn": importlib.util.find_spec("sklearn") is not None,
    }
    return all(found[need] for need in row.needs.split())


def run(row: Row) -> Result:
    """Run the row's command, and return its figure; rows with one command share one run of it."""
    output, seconds = ran(row.command, LONG_LIMIT_S if row.long else LIMIT_S)
    return Result(row, figure_of(row, output), seconds, output)


@cache
def ran(command: str, limit_s: float) -> tuple[str, float]:
    """Run a command by a shell at the root of the checkout; return (output, seconds). ``$T`` is a folder."""
    with tempfile.TemporaryDirectory(prefix="ccctl-papers-") as name:
        folder = Path(name)
        (folder / "bin").mkdir()
        for word, call in (("ccctl", "-P -m ccctl"), ("python", "")):
            shim = folder / "bin" / word
            shim.write_text(f'#!/bin/sh\nexec {sys.executable} {call} "$@"\n')
            shim.chmod(0o755)
        environment = {
            **os.environ,
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "T": name,
            "NO_COLOR": "1",
            "COLUMNS": "200",
        }
        begun_s = time.perf_counter()
        try:
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=limit_s,
                check=False,
            )
            output = done.stdout
        except subprocess.TimeoutExpired as late:
            output = f"ended after {late.timeout:g} s"
        return output, time.perf_counter() - begun_s


def figure_of(row: Row, output: str) -> str | None:
    """Return the figure in the output, its groups joined by ", "; None without one."""
    found = re.search(row.pattern, output, re.MULTILINE | re.DOTALL) if row.pattern else None
    return ", ".join(re.sub(r"\s+", " ", group) for group in found.groups()) if found else None


def remember(result: Result) -> None:
    """Store the figure, seconds and date of a result, in the file as it is now."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    new = replace(result.row, printed=result.figure or "", seconds=round(result.seconds, 1), date=today)
    # Several runs, each of some rows, may write at once.
    with Path(__file__).open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        papers = load()
        store(
            [
                replace(one, rows=tuple(new if row == result.row else row for row in one.rows))
                for one in papers
            ]
        )


def page(papers: Sequence[Paper]) -> str:
    """Return the page: a table and a paragraph for each paper."""
    parts = [_INTRODUCTION, _counts(papers)]
    for paper in papers:
        parts.append(f"## {paper.name}: {paper.title}\n")
        parts.append(
            "| paper | where | command | here | paper's | evidence | verdict |\n"
            "|---|---|---|---|---|---|---|\n" + "".join(_line(row) for row in paper.rows)
        )
        parts.append(f"**Its authors would still object:** {paper.objections}\n")
    return "\n".join(parts)


def _counts(papers: Sequence[Paper]) -> str:
    lines = ["| paper | " + " | ".join(VERDICTS) + " |", "|---|" + "---|" * len(VERDICTS)]
    for paper in papers:
        counts = [str(sum(row.verdict == verdict for row in paper.rows)) for verdict in VERDICTS]
        lines.append(f"| {paper.name} | " + " | ".join(counts) + " |")
    return "\n".join(lines) + "\n"


def _line(row: Row) -> str:
    cells = [
        f"{row.where}, {row.shows}",
        " ".join(f"`{path}`" for path in row.code) or "–",
        f"`{row.command}`" if row.command else "–",
        row.printed or "–",
        row.paper or "–",
        f"{row.evidence}, {row.date}" if row.date else row.evidence,
        f"{row.verdict.capitalize()}{': ' + row.how if row.how else '.'}",
    ]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def chosen(papers: Sequence[Paper], wanted: str, *, long: bool) -> Iterator[tuple[int, int]]:
    """Yield (paper, row) of the rows that contain ``wanted``; slow rows only with ``long``."""
    for at, paper in enumerate(papers):
        for number, row in enumerate(paper.rows):
            fits = wanted.lower() in f"{paper.name} {row.where} {row.shows} {row.command}".lower()
            if fits and row.command and (long or not row.long):
                yield at, number


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the requested rows; return 1 if a figure is missing or differs."""
    parser = argparse.ArgumentParser(description="Run the rows of the five papers, and compare.")
    parser.add_argument("wanted", nargs="?", default="", metavar="FILTER")
    parser.add_argument("--write", action="store_true", help="store what is printed, and make the page")
    parser.add_argument("--new", action="store_true", help="run only rows without a figure")
    parser.add_argument("--long", action="store_true", help="run rows that take over a minute, too")
    parser.add_argument("--against", action="store_true", help="published against ours instead")
    asked = parser.parse_args(arguments)
    if asked.against:
        import published_and_ours

        published_and_ours.main()
        return 0
    found, wrong = load(), 0
    print(
        f"{'paper':8} {'where':22} {'verdict':9} {'evidence':22} {'outcome':9} {'s':>6}  "
        "now | before | paper's"
    )
    for at, number in chosen(found, asked.wanted, long=asked.long):
        row = found[at].rows[number]
        if asked.new and row.printed:
            continue
        start = f"{found[at].name:8} {row.where[:22]:22} {row.verdict:9} {row.evidence:22}"
        if not is_possible(row):
            print(f"{start} left out: needs {row.needs}", flush=True)
            continue
        result = run(row)
        wrong += result.outcome in ("differs", "no figure")
        figures = " | ".join((result.figure or "-", row.printed or "-", row.paper or "-"))
        print(f"{start} {result.outcome:9} {result.seconds:6.1f}  {figures}", flush=True)
        if result.figure is None:
            print("    " + "\n    ".join(result.output.splitlines()[-5:]), flush=True)
        elif asked.write:
            remember(result)
    if asked.write:
        store(load())
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
