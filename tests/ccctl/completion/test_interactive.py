"""Completion as it is typed: TAB in bash, zsh and fish on a terminal, scripts where a wheel puts them."""

import os
import shutil
from pathlib import Path

import pexpect
import pytest
from limits import HANG_S

from ccctl.completion.scripts import SHELLS

ROOT = Path(__file__).parents[3]
READY = "RE''ADY", "READY"
# Command that starts each shell with default settings, and the variable that finds files below share/.
STARTED = {
    "bash": (["--norc", "--noprofile", "-i"], "source SHARE/bash-completion/completions/ccctl; PS1="),
    "zsh": (
        ["-f", "-i"],
        "PROMPT=; fpath=(SHARE/zsh/site-functions $fpath); autoload -Uz compinit; compinit -u -D",
    ),
    "fish": (["-i"], "function fish_prompt; end"),
}
PLACES = {
    "bash": ("bash-completion/completions/ccctl", "ccctl.bash"),
    "zsh": ("zsh/site-functions/_ccctl", "_ccctl"),
    "fish": ("fish/vendor_completions.d/ccctl.fish", "ccctl.fish"),
}


@pytest.fixture
def installed(tmp_path, _warm_commands):
    """A prefix with ccctl in bin/ and its completions under share/, and a user's empty home."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "ccctl").write_text(_warm_commands.for_shells())
    (tmp_path / "bin" / "ccctl").chmod(0o755)
    for place, name in PLACES.values():
        (tmp_path / "share" / place).parent.mkdir(parents=True)
        shutil.copy(ROOT / "completions" / name, tmp_path / "share" / place)
    home = tmp_path / "home"
    home.mkdir()
    (home / "profile.json").write_text("{}")
    for name in ("hosts.txt", "hostfile"):
        (home / name).write_text("gpu1 slots=4\nnode7 slots=4\n")
    (home / "bin").symlink_to(tmp_path / "bin")
    return tmp_path


# Pairs of typed text and the line after TAB. Each asks for another of what shells do with the same answers: a
# word with a space, a part of a word, a file, an option, a value behind =, a command by its path.
TYPED = [
    ("ccctl sche", "ccctl schema "),
    ("ccctl synth --network tor", "ccctl synth --network torus:"),
    ("ccctl synth --network pro", "ccctl synth --network profile.json"),
    ("ccctl lab run --traf", "ccctl lab run --traffic"),
    ("ccctl bench --profile=pro", "ccctl bench --profile=profile.json"),
    ("~/bin/ccctl sche", "~/bin/ccctl schema "),
    ("ccctl bench --hostfile hosts.txt --hosts nod", "ccctl bench --hostfile hosts.txt --hosts node7"),
]


@pytest.mark.parametrize("shell", SHELLS)
def test_tab_completes_what_was_typed(installed, shell):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    arguments, prepared = STARTED[shell]
    share = installed / "share"
    environment = {
        "PATH": f"{installed / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(installed / "home"),
        "XDG_DATA_DIRS": f"{share}{os.pathsep}/usr/share",
        "PYTHONPATH": str(ROOT),
        "TERM": "dumb",
        "LC_ALL": "C.UTF-8",
    }
    child = pexpect.spawn(
        shell,
        arguments,
        env=environment,
        cwd=environment["HOME"],
        timeout=HANG_S,
        encoding="utf-8",
        dimensions=(40, 400),
    )
    try:
        child.sendline(f"{prepared.replace('SHARE', str(share))}; echo {READY[0]}")
        child.expect_exact(READY[1])
        for typed, completed in TYPED:
            child.send(f"{typed}\t")
            # The terminal echoes the typed text; only what the shell adds can complete it.
            child.expect_exact(completed)
            # Ctrl-U takes the line back.
            child.sendline(f"\x15echo {READY[0]}")
            child.expect_exact(READY[1])
    finally:
        child.close(force=True)
