"""The scripts that `ccctl completion` prints, as files for packages to install.

``python -m ccctl.docs.completions completions`` writes them into the folder ``completions``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ccctl.completion import SHELLS

__all__ = ["scripts"]

_FILES = {"bash": "ccctl.bash", "zsh": "_ccctl", "fish": "ccctl.fish"}


def scripts() -> dict[str, str]:
    """Return every completion script as {file name: content}."""
    return {name: SHELLS[shell] for shell, name in _FILES.items()}


def main() -> None:
    """Write every script into the folder named on the command line."""
    folder = Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    for name, content in scripts().items():
        (folder / name).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
