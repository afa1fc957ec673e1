"""How a program is started on another host: by srun within a job of Slurm, else by a remote shell."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from exec.launcher.starters import allocation
from probes.base import UnavailableError

__all__ = ["on_host", "remote_shell"]

# As for mpirun: a site that has told Open MPI or MPICH how to reach its hosts has told us, too.
_SHELLS = ("PRTE_MCA_plm_ssh_agent", "HYDRA_LAUNCHER_EXEC")
# Never ask for a password; give up on a host that has not answered for 20 s.
_SSH = ("-x", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=4")
# One task that shares the node with the job's other steps, and may use all that the job has there.
_STEP = ("--overlap", "--nodes=1", "--ntasks=1", "--ntasks-per-node=1", "--mpi=none", "--cpu-bind=none")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def on_host(host: str, program: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """The command line that runs ``program`` on ``host``, to be started with ``env``.

    Of ``env`` srun hands on what this process has, too, and a remote shell nothing. Raises UnavailableError
    where there is neither.
    """
    srun = None if any(map(os.environ.get, _SHELLS)) else shutil.which("srun")
    if srun is not None and any(node.host == host for node in allocation.nodes()):
        ours = [name for name, value in os.environ.items() if env.get(name) == value]
        handed_on = ",".join(filter(_VARIABLE.fullmatch, ours))
        return [srun, *_STEP, f"--nodelist={host}", f"--export={handed_on}", *program]
    return [*remote_shell(), host, shlex.join(program)]


def remote_shell() -> list[str]:
    """The words before a host and a command that run the command there."""
    given = next((os.environ[name] for name in _SHELLS if os.environ.get(name)), "ssh:rsh")
    # Open MPI has a list of them, of which it takes the first that there is.
    for words in filter(None, map(shlex.split, given.split(":"))):
        path = shutil.which(words[0])
        if path is not None:
            options = _SSH if Path(path).name == "ssh" else ()
            return [path, *words[1:], *options]
    raise UnavailableError(
        f"no remote shell is found ({given}): ranks cannot be started on other hosts",
        hint=f"Install an OpenSSH client, or name a program like ssh in {_SHELLS[0]}.",
    )
