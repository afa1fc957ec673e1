"""Files that are installed beside the packages: manual pages and examples."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from pathlib import Path

from ccctl.errors import UnavailableError

__all__ = ["examples_folder", "manual_page", "own_command", "with_own_command"]

_PACKAGE = Path(__file__).resolve().parent
# Number of folders above the package that are searched for the prefix. In
# PREFIX/lib/python3.11/site-packages/ccctl it is the fourth.
_LEVELS_UP = 5


def manual_page(name: str) -> Path:
    """Return the path of a page such as ``ccctl-synth.1``; raises UnavailableError if missing."""
    return _folder(f"share/man/man{name.rpartition('.')[2]}", "man", name) / name


def examples_folder() -> Path:
    """Return the folder of the examples; raises UnavailableError if not installed."""
    return _folder("share/ccctl/examples", "examples", "ring_allreduce.py")


def own_command() -> str:
    """Return the absolute command line of this ccctl, for units and crontabs without the user's PATH."""
    started = shutil.which(sys.argv[0]) if Path(sys.argv[0]).name == "ccctl" else None
    beside = Path(sys.executable).with_name("ccctl")
    found = started or (str(beside) if os.access(beside, os.X_OK) else None)
    # Do not resolve a symbolic link: the link survives an upgrade, its target may not.
    return shlex.quote(str(Path(found).absolute())) if found else f"{shlex.quote(sys.executable)} -P -m ccctl"


def with_own_command(text: str) -> str:
    """Return a unit, crontab or script whose ``ccctl watch`` runs ``own_command``; comments stay."""
    lines = text.splitlines(keepends=True)
    run = re.compile(r"(/usr/bin/env )?(?<![\w/-])ccctl watch (?=[-\"])")
    own = f"{own_command()} watch "
    return "".join(line if line.startswith("#") else run.sub(lambda _: own, line) for line in lines)


def _folder(installed: str, in_source: str, has: str) -> Path:
    """Return the folder with the file ``has``: in the source tree, else below the installation prefix."""
    source = _PACKAGE.parent / in_source
    if (_PACKAGE.parent / "pyproject.toml").is_file() and (source / has).is_file():
        return source
    for prefix in _PACKAGE.parents[:_LEVELS_UP]:
        if (prefix / installed / has).is_file():
            return prefix / installed
    raise UnavailableError(
        f"{installed}/{has} is not there: this installation is without its manual and its examples",
        hint="Install the wheel as a whole: pip install ccctl-….whl.",
    )
