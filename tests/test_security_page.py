"""Each sentence of docs/explanation/security.md names a test, and that test exists."""

import re
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "explanation" / "security.md"
# Tried by a benchmark that needs minutes.
UNTESTED = "benchmarks/two_users.py"


def sentences():
    """The items of the page's lists, and the rows of its table."""
    found = []
    for line in PAGE.read_text().splitlines():
        if line.startswith("- ") or re.match(r"\| (?!what )", line):
            found.append(line)
        elif line.startswith("  "):
            found[-1] += line
    return found


def test_each_sentence_names_its_test():
    assert len(sentences()) > 30
    assert [line for line in sentences() if "[test_" not in line and UNTESTED not in line] == []


def test_each_named_test_exists():
    named = set(re.findall(r"\[(test_\w+)\]", PAGE.read_text()))
    there = set()
    for path in TESTS.rglob("test_*.py"):
        there |= set(re.findall(r"^def (test_\w+)", path.read_text(), re.M))
    assert named - there == set()
