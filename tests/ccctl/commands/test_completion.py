"""`ccctl completion`: the scripts, as they are installed."""

from pathlib import Path

import pytest

COMPLETIONS = Path(__file__).parents[3] / "completions"


@pytest.mark.parametrize(
    ("shell", "file"), [("bash", "ccctl.bash"), ("zsh", "_ccctl"), ("fish", "ccctl.fish")]
)
def test_it_prints_what_is_installed(run_ccctl, shell, file):
    done = run_ccctl("completion", shell)
    assert (done.returncode, done.stdout) == (0, (COMPLETIONS / file).read_text())


def test_another_shell_is_refused(run_ccctl):
    done = run_ccctl("completion", "tcsh")
    assert (done.returncode, done.stdout) == (2, "")
    assert "SHELL: expected one of bash, zsh, fish, found 'tcsh'" in done.stderr
