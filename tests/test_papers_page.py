"""docs/explanation/papers: the page is made from the data, and each claim has a figure that a run prints."""

from __future__ import annotations

import importlib.util
import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from understood import parse

ROOT = Path(__file__).parents[1]
# Rows that need a few seconds, of several papers and kinds of command.
SAMPLE = (
    ("GC3", "Fig. 10", "AllToNext"),
    ("GC3", "Sec. 3.2", "what is valid"),
    ("TACOS", "Figs. 7 and 8", "the time-expanded network"),
    ("TACOS", "Figs. 11 and 12, Sec. V-A", "the ILP"),
    ("AdapCC", "Sec. IV-C 1", "break-even ski rental, 5 ms, the ready set's own b"),
    ("DS-Sync", "Sec. III-B 1, Fig. 4", "racks and representatives"),
    ("DeAR", "Fig. 4, Table I", "models and tensors"),
)


def _module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("papers", ROOT / "benchmarks" / "papers.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["papers"] = module
    spec.loader.exec_module(module)
    return module


papers = _module()
FOUND = papers.load()
ROWS = [(paper.name, row) for paper in FOUND for row in paper.rows]


def _calls() -> list[list[str]]:
    """The words of each call of ccctl or python in the rows' commands."""
    found = set()
    for _, row in ROWS:
        for part in re.split(r"&&|;|\|", re.sub(r"printf '[^']*'", "", row.command.replace("$T", "/tmp"))):
            words = shlex.split(part.strip().removeprefix("do "))
            if words and words[0] in ("ccctl", "python"):
                found.add(tuple(word for word in words if word != "-P"))
    return [list(words) for words in sorted(found)]


def test_the_page_is_made_from_the_data() -> None:
    assert papers.PAGE.read_text() == papers.page(FOUND)


def test_all_five_papers_are_there_and_each_says_what_its_authors_object_to() -> None:
    assert [paper.name for paper in FOUND] == ["AdapCC", "GC3", "TACOS", "DS-Sync", "DeAR"]
    for paper in FOUND:
        assert len(paper.rows) > 15
        assert len(paper.objections) > 200


@pytest.mark.parametrize(("name", "row"), ROWS, ids=[f"{name} {row.where} {row.shows}" for name, row in ROWS])
def test_a_row_claims_only_what_a_run_printed(name: str, row: Any) -> None:
    assert row.verdict in papers.VERDICTS
    assert row.evidence in papers.EVIDENCE
    assert set(row.needs.split()) <= {*papers.NEEDS}
    assert [path for path in row.code if not (ROOT / path).exists()] == []
    assert bool(row.pattern) == bool(row.command)
    assert bool(row.printed) == bool(row.date)
    if row.is_shown:
        assert row.printed
        assert row.evidence != "none"
    if row.verdict == "missing":
        assert row.how


@pytest.mark.parametrize("words", [words for words in _calls() if words[0] == "ccctl"], ids=" ".join)
def test_ccctl_understands_it(words: list[str]) -> None:
    parse(words[1:])


@pytest.mark.parametrize("words", [words for words in _calls() if words[0] == "python"], ids=" ".join)
def test_the_benchmark_or_test_has_what_is_asked_of_it(words: list[str]) -> None:
    if words[1:3] == ["-m", "pytest"]:
        assert all((ROOT / word).exists() for word in words if word.startswith("tests/"))
        return
    text = (ROOT / words[1]).read_text()
    assert words[1].startswith("benchmarks/")
    for word in words[2:]:
        assert word.strip() in text or re.fullmatch(r"[\d.]+[KMG]?", word), word


@pytest.mark.parametrize("key", SAMPLE, ids=" ".join)
def test_a_sample_of_the_rows_prints_its_figure_again(key: tuple[str, str, str]) -> None:
    (row,) = (row for name, row in ROWS if (name, row.where, row.shows) == key)
    result = papers.run(row)
    assert result.outcome == "same", (result.figure, row.printed, result.output[-2000:])


def test_numbers_agree_within_the_share_and_words_exactly() -> None:
    assert papers.agrees("1.02x, ring", "1.00x, ring", 0.05)
    assert not papers.agrees("1.2x, ring", "1.00x, ring", 0.05)
    assert not papers.agrees("1.00x, tree", "1.00x, ring", 0.05)


def test_a_row_without_a_figure_is_told_apart_from_one_that_differs() -> None:
    row = replace(ROWS[0][1], pattern=r"time (\d+)", printed="10", within=0.1)
    outcomes = {
        output: papers.Result(row, papers.figure_of(row, output), 0.0, output).outcome
        for output in ("time 10", "time 20", "nothing")
    }
    assert outcomes == {"time 10": "same", "time 20": "differs", "nothing": "no figure"}
