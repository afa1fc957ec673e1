"""README.md shows what the commands print: its sample has the shape of a run of today."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# What differs between machines and runs: figures with their units, which method or cut it was, and plurals.
NUMBER = re.compile(r"-?\d[\d.,]*(e-?\d+)?( ?(%|[numk]?s|[KMGT]i?B?(/s)?|x)(?![\w]))?")
METHOD = re.compile(
    r"\b(ring|circulant|greedy|forest|paths|ilp|adapcc|direct|all_pairs|halving_doubling|doubling|tree|bidirectional|hierarchical)\b"
)


def shape(line):
    line = METHOD.sub("METHOD", re.sub(r"\S+/\S+\.json", "FILE", line))
    line = re.sub(r"\bby [a-z ]+", "by BOUND", NUMBER.sub("#", line))
    return re.sub(r"(?<=# )([a-z]+?)s?\b", r"\1", re.sub(r"\s+", " ", line.lstrip("* "))).strip()


def comparable(command, lines):
    """The lines that every machine prints: not its devices, nor why one method was kept before another."""
    if " detect " in command:
        return {shape(lines[0]).split(":")[1]} if lines else set()
    remark = re.compile(r"note:|\w+ with \d+ chunks:")
    return {shape(line) for line in lines if not remark.match(line)}


@pytest.mark.mpi
def test_the_sample_in_the_readme_looks_like_what_the_commands_print_today():
    script = runpy.run_path(str(ROOT / ".ci" / "readme_sample.py"))
    shown = script["sample"]((ROOT / "README.md").read_text())
    assert len(shown) > 5
    for (command, then), (_, now) in zip(shown, script["printed"]([c for c, _ in shown]), strict=True):
        strange = comparable(command, then) - comparable(command, now)
        assert not strange, f"{command} no longer prints lines of this shape (python -P .ci/readme_sample.py)"
