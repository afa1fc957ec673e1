"""`ccctl help`: the installed pages, as text where nobody looks at a terminal; the list of commands alone."""

import tomllib
from pathlib import Path

import pytest

from ccctl import shipped
from ccctl.commands import COMMANDS
from ccctl.errors import UnavailableError

MAN = Path(__file__).parents[3] / "man"


def test_without_a_command_the_commands_are_listed(run_ccctl):
    done = run_ccctl("help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.rstrip("\n") == run_ccctl("--help").stdout.rstrip("\n")


@pytest.mark.parametrize("words", [["ccctl"], ["synth"], ["artifacts"], ["lab", "up"]])
def test_a_page_is_shown_without_escapes(run_ccctl, words):
    done = run_ccctl("help", *words)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("ccctl") and "\nNAME\n" in done.stdout
    assert not set("\x1b\x08") & set(done.stdout)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["snyth"], "No such command 'snyth'. Did you mean 'synth'?"),
        (["manual"], "No such command 'manual'; did you mean 'help'?"),
        (["lab", "upp"], "No such command 'upp'"),
        (["lab", "artifacts"], "No such command 'artifacts'"),
        (["synth", "up"], "ccctl synth has no commands of its own, found 'up'"),
    ],
)
def test_what_is_no_command_is_refused(run_ccctl, words, said):
    done = run_ccctl("help", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


@pytest.mark.parametrize("name", [command.__name__ for command in COMMANDS])
def test_every_command_has_its_page(name):
    assert shipped.manual_page(f"ccctl-{name}.1") == MAN / f"ccctl-{name}.1"


@pytest.mark.parametrize("levels", ["lib/python3.11/site-packages", "."])
def test_pages_and_examples_are_found_below_the_prefix(monkeypatch, tmp_path, levels):
    monkeypatch.setattr(shipped, "_PACKAGE", tmp_path / levels / "ccctl")
    for name in ("man/man1/ccctl.1", "man/man1/ccctl-synth.1", "ccctl/examples/ring_allreduce.py"):
        file = tmp_path / "share" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    page = shipped.manual_page("ccctl-synth.1")
    assert page is not None and page.samefile(tmp_path / "share/man/man1/ccctl-synth.1")
    assert shipped.examples_folder().samefile(tmp_path / "share/ccctl/examples")


def test_the_wheel_puts_the_examples_where_they_are_looked_for(monkeypatch, tmp_path):
    project = tomllib.loads((MAN.parent / "pyproject.toml").read_text())
    target = project["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-data"]["examples"]
    (tmp_path / target).mkdir(parents=True)
    (tmp_path / target / "ring_allreduce.py").touch()
    monkeypatch.setattr(shipped, "_PACKAGE", tmp_path / "lib/python3.11/site-packages/ccctl")
    assert shipped.examples_folder().samefile(tmp_path / target)


def test_an_installation_without_them_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(shipped, "_PACKAGE", tmp_path / "lib" / "python3.11" / "site-packages" / "ccctl")
    with pytest.raises(UnavailableError, match=r"share/man/man1/ccctl-synth\.1 is not there"):
        shipped.manual_page("ccctl-synth.1")
