"""Commands inside a host of a lab, with the environment by which MPI reaches the lab's other hosts.

The command runs in a PID namespace of its own, as in a container: when it ends or is stopped, everything that
it started on any host of the lab ends with it.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from exec.lab.model import DEVICE, SUBNET, Lab
from probes.files import temporary_folders
from probes.profiling import NICS

if TYPE_CHECKING:
    import psutil

__all__ = ["FILES", "RUN", "environment", "files", "started"]

# A command gets this long to clean up after Ctrl-C or SIGTERM, before SIGKILL.
_PATIENCE_S = 3.0
FILES = _LOGIN, _OPENMPI_HOSTS, _MPICH_HOSTS = "login", "hosts.openmpi", "hosts.mpich"
# Prefix of the name of a run's folder, and the pattern of such names.
_RUN = "run-"
RUN = re.compile(rf"{_RUN}[0-9a-f]{{16}}")
# A write in the UTS namespace sets the host's name, without hostname(1).
_NAME_IT = 'echo "$0" >/proc/sys/kernel/hostname'
# `ip netns exec` mounts a /sys of its own, which lacks the cgroups that limit the host's processes.
_SHOW_CGROUPS = (
    "if grep -q :cpu[:,] /proc/self/cgroup; then mount -t tmpfs none /sys/fs/cgroup && "
    "mkdir /sys/fs/cgroup/cpu && mount -t cgroup -o cpu none /sys/fs/cgroup/cpu; "
    "else mount -t cgroup2 none /sys/fs/cgroup; fi 2>/dev/null; "
)
# The shell, not the command, is process 1 of the namespace, because process 1 ignores signals for which it
# has no handler.
_FIRST_PROCESS = _SHOW_CGROUPS + _NAME_IT + '; "$@"; exit $?'


def files(lab: Lab) -> dict[str, str]:
    """Return the files that commands inside need, as {name: content}: login script and lists of hosts."""
    return {
        _LOGIN: f"""#!/bin/sh
# As ssh: login [-options] HOST COMMAND...
while [ "${{1#-}}" != "$1" ]; do shift; done
host=$1
shift
exec ip netns exec "{lab.namespace("$host")}" unshare --uts -- \\
    sh -c '{_SHOW_CGROUPS}{_NAME_IT}; eval "$*"' "$host" "$@"
""",
        _OPENMPI_HOSTS: "".join(f"{host.name} slots={host.slots}\n" for host in lab.hosts),
        _MPICH_HOSTS: "".join(f"{host.name}:{host.slots}\n" for host in lab.hosts),
    }


def environment(lab: Lab, folder: Path) -> dict[str, str]:
    """Return the variables that make any mpirun inside use the lab, whose ``files`` are in ``folder``.

    Open MPI and MPICH avoid shared memory, because messages in it would bypass the lab's network. Waiting
    ranks of Open MPI yield the few cores.
    """
    return {
        "CCCTL_LAB": lab.name,
        "CCCTL_HOSTS": lab.slots(),
        **({NICS: ",".join(lab.devices())} if lab.nics > 1 else {}),
        "PRTE_MCA_plm_ssh_agent": str(folder / _LOGIN),
        "PRTE_MCA_prte_default_hostfile": str(folder / _OPENMPI_HOSTS),
        "PRTE_MCA_hwloc_default_binding_policy": "none",
        "OMPI_MCA_pml": "ob1",
        "OMPI_MCA_btl": "tcp,self",
        "OMPI_MCA_btl_tcp_if_include": SUBNET,
        "OMPI_MCA_mpi_yield_when_idle": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "HYDRA_LAUNCHER": "ssh",
        "HYDRA_LAUNCHER_EXEC": str(folder / _LOGIN),
        "HYDRA_HOST_FILE": str(folder / _MPICH_HOSTS),
        "HYDRA_IFACE": DEVICE,
        "UCX_TLS": "tcp,self",
        "UCX_NET_DEVICES": DEVICE,
    }


@contextlib.contextmanager
def started(lab: Lab, host: str, command: Sequence[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``command`` inside ``host`` within the block, with this process's streams.

    At the end of the block, processes that are left get SIGTERM, and later SIGKILL. All end with this
    process, even if it is killed.
    """
    # Each run has a TMPDIR of its own: MPI names files by process ids, which are the same in every run.
    with temporary_folders.folder(_RUN, folder) as scratch:
        variables = {**os.environ, **environment(lab, folder), "TMPDIR": str(scratch)}
        with _process(lab.namespace(host), host, command, variables) as process:
            yield process


@contextlib.contextmanager
def _process(
    namespace: str, host: str, command: Sequence[str], variables: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    inside = ["setpriv", "--pdeathsig", "KILL", "ip", "netns", "exec", namespace]
    inside += ["unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]
    inside += ["sh", "-c", _FIRST_PROCESS, host, *command]
    process = subprocess.Popen(inside, env=variables)
    try:
        yield process
    except KeyboardInterrupt:
        # The command has received Ctrl-C too, and may be cleaning up.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_PATIENCE_S)
        raise
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    import psutil

    # The command is the child of the shell that unshare has started.
    for shell in _children(process):
        with contextlib.suppress(psutil.Error):
            for command in shell.children():
                command.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_PATIENCE_S)
    shells = _children(process)
    process.kill()
    process.wait()
    # The kernel kills the shell after its parent. The shell ends after all that it has started.
    psutil.wait_procs(shells, _PATIENCE_S)


def _children(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """Return the processes that ``process`` has started; [] if it has ended."""
    import psutil

    with contextlib.suppress(psutil.Error):
        return psutil.Process(process.pid).children() if process.poll() is None else []
    return []
