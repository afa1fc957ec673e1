"""Commands in README.md and docs/ run, in order, and print lines of the shape shown."""

import platform
import re
import runpy
from pathlib import Path

import pytest
import typer
from understood import calls, parse

from ccctl.commands import COMMANDS
from ccctl.main import examples

ROOT = Path(__file__).parents[1]
PAGES = runpy.run_path(str(ROOT / ".ci" / "page_samples.py"))
# Each takes 6 s of processor time or more, as it measures links, waits for losses or sweeps for a runtime.
# Tests of profile, bench, accept, watch, synth, report and survivors start the same commands; each line of
# these pages is parsed below.
LONG = {
    f"docs/{page}.md"
    for page in (
        *("tutorial/index", "tutorial/one-screen", "how-to/accept-a-cluster", "how-to/watch-links"),
        *("how-to/late-and-lost-ranks", "how-to/load-in-nccl", "how-to/slower-than-predicted"),
        "how-to/compare-libraries",
        "how-to/share-results",
    )
}
# Words that differ between machines and runs: figures with units, methods and cuts, plurals.
NUMBER = re.compile(r"-?\d[\d.,]*(e-?\d+)?( ?(%|[numk]?s|[KMGT]i?B?(/s)?|x)(?![\w]))?")
METHOD = re.compile(
    r"\b(ring|demand|scatter_allgather|gossip|aligned|two_step|exchange|bine|trivance|circulant|stars|greedy|forest|paths|ilp|adapcc|direct|all_pairs|halving_doubling|doubling|tree|bidirectional|hierarchical)\b"
)


def shape(line):
    # A ratio is a word if ranks share cores or times differ much.
    line = re.sub(r"\b(cores|spread)\b", "1x", line)
    line = METHOD.sub("METHOD", re.sub(r"\S+/\S+\.json", "FILE", line))
    # A row of a method has a few words on it; other machines may try other methods.
    line = re.sub(r"^([* ] METHOD +[\d.]+ [num]?s) .*", r"\1", line)
    line = re.sub(r"\bbound: .*", "BOUND", NUMBER.sub("#", line.replace(platform.node(), "vm")))
    return re.sub(r"(?<=# )([a-z]+?)s?\b", r"\1", re.sub(r"\s+", " ", line.lstrip("* "))).strip()


def comparable(command, lines):
    """The lines that every machine prints: not its devices, disturbances, nor why a method was kept."""
    if " detect " in command and "--from" not in command:
        return {shape(lines[0]).split(":")[1]} if lines else set()
    remark = re.compile(r"note:|finding: \d+ links? unsteady|\w+, \d+ chunks?: |# ours: \S+ +:")
    return {shape(line) for line in lines if line.strip() and not remark.match(line)}


def name_of(page):
    return page.relative_to(ROOT).as_posix()


def pages():
    for page in PAGES["pages"]():
        yield pytest.param(page, id=name_of(page), marks=[pytest.mark.long] * (name_of(page) in LONG))


def lines():
    """Every line that pages and examples show, by where it stands, also those that nothing here can run."""
    for page in PAGES["pages"]():
        for step in PAGES["steps"](page.read_text()):
            if not isinstance(step, PAGES["File"]) and calls(step.text):
                yield name_of(page), step.text
    for command in COMMANDS:
        yield from ((command.__name__, line) for line, _ in examples(command))


@pytest.mark.parametrize(("where", "line"), [*lines()])
def test_ccctl_understands_every_line_shown(where, line, tmp_path, monkeypatch):
    # Folders of files to write are asked for before anything runs.
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path)
    for arguments in calls(line):
        parse(arguments)


def test_an_option_that_is_none_is_not_understood():
    with pytest.raises(typer.TyperException, match="--nodes"):
        parse(["profile", "--nodes", "4"])


@pytest.mark.mpi
@pytest.mark.parametrize("page", [*pages()])
def test_what_a_page_shows_is_what_its_commands_print_today(page, subtests, _warm_commands):
    with PAGES["shell"](_warm_commands.for_shells()) as shell:
        for step in PAGES["steps"](page.read_text()):
            if isinstance(step, PAGES["File"]):
                shell.take(step)
                continue
            with subtests.test(step.text):
                if reason := PAGES["lacking"](step.needs):
                    pytest.skip(f"needs {reason}")
                printed = shell.run(step.text)
                if step.varies:
                    continue
                now = comparable(step.text, printed)
                then = [line for line in step.shown if line != PAGES["LEFT_OUT"]]
                strange = comparable(step.text, then) - now
                assert not strange, f"no longer printed (python -P .ci/page_samples.py {page.name})"


def test_what_pages_tell_readers_to_type_is_marked_as_such():
    """Commands of the tutorial and the how-tos stand in blocks that are run, or that say what they need."""
    for page in [*(ROOT / "docs" / "tutorial").iterdir(), *(ROOT / "docs" / "how-to").iterdir()]:
        kinds = re.findall(r"^```(\S*)", page.read_text(), re.MULTILINE)[::2]
        assert not {"", "sh", "bash", "shell"} & set(kinds), page


def test_a_page_is_its_files_and_commands_in_order():
    text = (
        'Words.\n\n```toml title="a/b.toml"\nx = 1\n```\n\n<!-- needs: root gpu -->\n```console\n'
        "$ one \\\n> two\n1\n\n2\n\n$ three\n```\n```python\nprint()\n```\n"
    )
    file, one, three = PAGES["steps"](text)
    assert (file.name, file.content) == ("a/b.toml", "x = 1\n")
    assert (one.text, one.shown, one.needs) == ("one \\\ntwo", ("1", "", "2"), ("root", "gpu"))
    assert (three.text, three.shown, three.varies) == ("three", (), False)


def test_what_varies_is_run_and_not_compared():
    (one,) = PAGES["steps"]("<!-- needs: root -->\n<!-- varies -->\n```console\n$ one\n```\n")
    assert (one.varies, one.needs) == (True, ("root",))


def test_a_command_that_fails_is_told_with_what_it_printed():
    with PAGES["shell"]() as shell, pytest.raises(RuntimeError, match="ended with 3:\nno"):
        shell.run("echo no; exit 3")
