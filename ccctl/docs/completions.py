"""The shell completions: small constant scripts that ask ccctl itself what may follow.

``python -m ccctl.docs.completions completions`` writes them into the folder ``completions``.
"""

from __future__ import annotations

import sys
from pathlib import Path

# typer.completion re-exports this without declaring it, which a strict type checker refuses.
from typer._completion_shared import get_completion_script

__all__ = ["scripts"]

_FILES = {"bash": "ccctl.bash", "zsh": "_ccctl", "fish": "ccctl.fish"}
_ZSH_REGISTERS = "compdef _ccctl_completion ccctl"
# Found on zsh's path, the file is run as the function itself at the first TAB, and must complete then.
_ZSH_COMPLETES = f"""if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
  _ccctl_completion "$@"
else
  {_ZSH_REGISTERS}
fi"""


def scripts() -> dict[str, str]:
    """Every completion script as {file name: content}."""
    written = {
        name: get_completion_script(prog_name="ccctl", complete_var="_CCCTL_COMPLETE", shell=shell) + "\n"
        for shell, name in _FILES.items()
    }
    written["_ccctl"] = written["_ccctl"].replace(_ZSH_REGISTERS, _ZSH_COMPLETES)
    return written


def main() -> None:
    """Write every script into the folder named on the command line."""
    folder = Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    for name, content in scripts().items():
        (folder / name).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
