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
    ("ccctl completion bash", "print the script for bash"),
    ("ccctl completion zsh > _ccctl", "a file for a folder on zsh's fpath"),
    ("ccctl completion fish > ccctl.fish", "a file for ~/.config/fish/completions"),
)


def completion(
    shell: Annotated[
        str | None,
        typer.Argument(metavar="SHELL", autocompletion=words.one_of(*SHELLS), help="bash, zsh or fish."),
    ] = None,
) -> None:
    """Print the completion script of a shell.

    It completes commands, options and values: networks, collectives, methods, peers and hosts. Hosts come
    from the --hostfile of the command being typed, from CCCTL_HOSTS and from the job of Slurm. If none of
    them names a host, the file "hostfile" or "hosts" in the current folder does. Run the command for your
    shell once. It takes effect in shells started later. If a package has installed ccctl, its completion
    files may already be under share/, where shells find them.

    \b
    echo 'eval "$(ccctl completion bash)"' >> ~/.bashrc
    echo 'eval "$(ccctl completion zsh)"' >> ~/.zshrc
    ccctl completion fish > ~/.config/fish/completions/ccctl.fish
    """
    if shell is None:
        raise UsageError(f"SHELL: expected one of {', '.join(SHELLS)}", hint="see ccctl completion --help")
    refuse_unknown("SHELL", shell, SHELLS)
    console.document(SHELLS[shell].rstrip("\n"))
