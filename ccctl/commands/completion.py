"""`ccctl completion`: the script that lets a shell complete what is typed."""

from __future__ import annotations

from typing import Annotated

import typer

from ccctl import console
from ccctl.completion import words
from ccctl.completion.scripts import SHELLS
from ccctl.errors import UsageError

__all__ = ["EXAMPLES", "completion"]

EXAMPLES = (
    ("ccctl completion bash", 'for ~/.bashrc: eval "$(ccctl completion bash)"'),
    ("ccctl completion zsh > _ccctl", "a file for a folder on zsh's fpath"),
    ("ccctl completion fish > ccctl.fish", "a file for ~/.config/fish/completions"),
)


def completion(
    shell: Annotated[
        str,
        typer.Argument(metavar="SHELL", autocompletion=words.one_of(*SHELLS), help="bash, zsh or fish."),
    ],
) -> None:
    """Print the completion for a shell.

    Commands, options and values complete: networks, collectives, methods, peers, and the hosts of the
    hostfile on the line, of CCCTL_HOSTS and of a job of Slurm. A package that installs the files under share/
    needs none of this: shells find them there.
    """
    if shell not in SHELLS:
        from probes.wording import meant

        raise UsageError(
            f"SHELL: expected one of {', '.join(SHELLS)}, found {shell!r}", hint=meant(shell, SHELLS)
        )
    console.data(SHELLS[shell].rstrip("\n"))
