"""Runs a command inside a host of a lab, with all that MPI needs to reach the others by itself.

The command gets process numbers of its own, as in a container: when it ends or is stopped, all that
it started on any host of the lab ends with it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Sequence

from exec.lab_network import DEVICE, SUBNET, Lab

__all__ = ["environment", "login_script", "started"]

_PATIENCE_S = 3.0
# The kernel takes a host's name from whoever is in its UTS namespace: no need for hostname(1).
_NAME_IT = 'echo "$0" >/proc/sys/kernel/hostname'
# The shell stays as the first process: as such the command itself would be deaf to signals.
_FIRST_PROCESS = _NAME_IT + '; "$@"; exit $?'


def login_script(lab: Lab) -> str:
    """A look-alike of ssh, ``SCRIPT [-options] HOST COMMAND…``, that reaches the hosts of ``lab``."""
    return f"""#!/bin/sh
while [ "${{1#-}}" != "$1" ]; do shift; done
host=$1
shift
exec ip netns exec "{lab.namespace("$host")}" unshare --uts -- \\
    sh -c '{_NAME_IT}; shift; eval "$*"' "$host" "$host" "$@"
"""


def environment(lab: Lab, login: str) -> dict[str, str]:
    """What makes any mpirun inside use the lab: ``login`` is the path of the look-alike of ssh.

    Open MPI and MPICH are told to leave shared memory alone, which would carry messages past the
    network between hosts that are one machine, and to yield the few cores when they wait.
    """
    return {
        "CCCTL_LAB": lab.name,
        "CCCTL_HOSTS": lab.slots(),
        "PRTE_MCA_plm_ssh_agent": login,
        "PRTE_MCA_hwloc_default_binding_policy": "none",
        "OMPI_MCA_pml": "ob1",
        "OMPI_MCA_btl": "tcp,self",
        "OMPI_MCA_btl_tcp_if_include": SUBNET,
        "OMPI_MCA_mpi_yield_when_idle": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "HYDRA_LAUNCHER": "ssh",
        "HYDRA_LAUNCHER_EXEC": login,
        "HYDRA_IFACE": DEVICE,
        "UCX_TLS": "tcp,self",
        "UCX_NET_DEVICES": DEVICE,
    }


@contextlib.contextmanager
def started(lab: Lab, host: str, command: Sequence[str], login: str) -> Iterator[subprocess.Popen[bytes]]:
    """``command`` while it runs inside ``host``, with this process's streams.

    On leaving, what still runs of it is asked to end, and is killed where it does not.
    """
    inside = ["ip", "netns", "exec", lab.namespace(host), "unshare", "--uts", "--pid", "--fork"]
    inside += ["--kill-child", "--mount-proc", "--", "sh", "-c", _FIRST_PROCESS, host, *command]
    process = subprocess.Popen(inside, env={**os.environ, **environment(lab, login)})
    try:
        yield process
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        _ask_to_end(process.pid)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_PATIENCE_S)
    process.kill()
    process.wait()


def _ask_to_end(pid: int) -> None:
    """Send SIGTERM to the command itself: the child of the shell that unshare has started."""
    import psutil

    with contextlib.suppress(psutil.Error):
        for shell in psutil.Process(pid).children():
            for command in shell.children():
                command.terminate()
