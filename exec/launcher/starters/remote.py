"""Start of a program on another host: by srun on the nodes of a Slurm job, else by a remote shell."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from exec.launcher import HostSlots, parse
from probes.base import UnavailableError, UsageError

__all__ = ["nodes", "on_host", "other_nodes", "remote_shell"]

# The variables by which a site names its remote shell for Open MPI or MPICH; ccctl uses the same shell.
_SHELLS = ("PRTE_MCA_plm_ssh_agent", "HYDRA_LAUNCHER_EXEC")
# Never ask for a password; give up on a host that has not answered for 20 s.
_SSH = ("-x", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=4")
# One task that shares the node with the job's other steps, and may use all of the job's resources there.
_STEP = ("--overlap", "--nodes=1", "--ntasks=1", "--ntasks-per-node=1", "--mpi=none", "--cpu-bind=none")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# An entry of SLURM_TASKS_PER_NODE, such as 2(x3),1.
_TASKS = re.compile(r"([0-9]+)(?:\(x([0-9]+)\))?")


def on_host(host: str, program: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """Return the command line that runs ``program`` on ``host``, to be started with ``env``.

    srun passes on the variables of ``env`` that have the same value in this process; a remote shell passes on
    none. Raises UnavailableError if neither can be used.
    """
    srun = None if any(map(os.environ.get, _SHELLS)) else shutil.which("srun")
    if srun is not None and any(node.host == host for node in nodes()):
        ours = [name for name, value in os.environ.items() if env.get(name) == value]
        handed_on = ",".join(filter(_VARIABLE.fullmatch, ours))
        return [srun, *_STEP, f"--nodelist={host}", f"--export={handed_on}", *program]
    return [*remote_shell(), host, shlex.join(program)]


def remote_shell() -> list[str]:
    """Return the words that come before a host and a command to run there."""
    given = next((os.environ[name] for name in _SHELLS if os.environ.get(name)), "ssh:rsh")
    # Open MPI has a list of shells and takes the first that exists.
    for words in filter(None, map(shlex.split, given.split(":"))):
        path = shutil.which(words[0])
        if path is not None:
            options = _SSH if Path(path).name == "ssh" else ()
            return [path, *words[1:], *options]
    raise UnavailableError(
        f"no remote shell is found ({given}): ranks cannot be started on other hosts",
        hint=f"Install an OpenSSH client, or name a program like ssh in {_SHELLS[0]}.",
    )


def nodes() -> tuple[HostSlots, ...]:
    """Return the nodes of this process's Slurm job, with one slot per task; none outside of a job.

    In a step on some of the job's nodes, SLURM_TASKS_PER_NODE does not list all nodes; then each node has one
    slot.
    """
    try:
        named = parse(os.environ.get("SLURM_JOB_NODELIST", ""))
    except UsageError:
        return ()
    tasks: list[int] = []
    for count, times in _TASKS.findall(os.environ.get("SLURM_TASKS_PER_NODE", "")):
        tasks += [int(count)] * int(times or 1)
    if len(tasks) != len(named) or 0 in tasks:
        tasks = [1] * len(named)
    return tuple(HostSlots(node.host, count) for node, count in zip(named, tasks, strict=True))


def other_nodes() -> str | None:
    """Return `nodes` as a node set, gpu1:2,gpu2:2; None if this host is the only one."""
    found = nodes()
    if not found or (len(found) == 1 and found[0].is_here):
        return None
    return ",".join(f"{node.host}:{node.slots}" for node in found)
