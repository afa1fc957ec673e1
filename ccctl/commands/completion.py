"""`ccctl completion`: the script that lets a shell complete what is typed."""

from __future__ import annotations

from typing import Annotated

import typer

from ccctl import console
from ccctl.arguments import refuse_unknown
from ccctl.completion import SHELLS, words
from ccctl.errors import UsageError

__all__ = ["EXAMPLES", "completion"]

EXAMPLES = (
    ("ccctl completion bash", "print that of bash"),
    ("ccctl completion zsh > _ccctl", "a file for a folder on zsh's fpath"),
    ("ccctl completion fish > ccctl.fish", "a file for ~/.config/fish/completions"),
)


def completion(
    shell: Annotated[
        str | None,
        typer.Argument(metavar="SHELL", autocompletion=words.one_of(*SHELLS), help="bash, zsh or fish."),
    ] = None,
) -> None:
    """Print the completion for a shell.

    Commands, options and values complete: networks, collectives, methods, peers, and the hosts of the
    hostfile on the line, of CCCTL_HOSTS and of a job of Slurm, else of the file hostfile or hosts in the
    folder. Type the line of your shell once; shells that start after it complete. A package that installs
    the files under share/ needs none: shells find them there.

    \b
    echo 'eval "$(ccctl completion bash)"' >> ~/.bashrc
    echo 'eval "$(ccctl completion zsh)"' >> ~/.zshrc
    ccctl completion fish > ~/.config/fish/completions/ccctl.fish
    """
    if shell is None:
        raise UsageError(f"SHELL: expected one of {', '.join(SHELLS)}", hint="see ccctl completion --help")
    refuse_unknown("SHELL", shell, SHELLS)
    console.document(SHELLS[shell].rstrip("\n"))
