"""Which mpirun starts the ranks, and the command line and environment that it is started with."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from exec.launcher.nodeset import HostSlots
from probes.errors import UnavailableError
from probes.install_hints import install

__all__ = ["Launcher", "command", "find", "variables"]

Kind = Literal["openmpi", "mpich", "intel"]
_ONE_THREAD = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
# The ranks of other hosts see nothing of our environment but this, and what MPI forwards itself.
_FORWARDED = ("CCCTL_CONTROL", "CCCTL_CONTROL_KEY", "CCCTL_SCRATCH", *_ONE_THREAD)


# Linux takes no word of a command line above 128 KiB.
_LONGEST_WORD = 100_000


@dataclass(frozen=True)
class Launcher:
    """A program that starts MPI ranks, and whose command line it understands."""

    path: str
    kind: Kind


def find() -> Launcher:
    """The mpirun of this Python environment, else that of PATH; raises UnavailableError without one."""
    beside = str(Path(sys.executable).parent)
    for folder in (beside, None):
        for name in ("mpirun", "mpiexec"):
            path = shutil.which(name, path=folder)
            if path is not None:
                return Launcher(path, _kind(path))
    raise UnavailableError(
        f"no mpirun or mpiexec beside {sys.executable} nor on PATH: ranks cannot be started",
        hint=install("openmpi"),
    )


def command(
    launcher: Launcher,
    ranks: int,
    hosts: Sequence[HostSlots],
    program: Sequence[str],
    folder: Path | None = None,
) -> list[str]:
    """The command line that starts ``ranks`` processes of ``program``, on ``hosts`` or else here.

    A list of hosts that is too long for a command line is written to a file in ``folder``.
    """
    where = _where(launcher, hosts, folder)
    if launcher.kind != "openmpi":
        # Otherwise it kills every rank when one dies, and blames any of them.
        watched = ["-disable-auto-cleanup"] if launcher.kind == "mpich" else []
        return [launcher.path, *watched, "-n", str(ranks), *where, *program]
    forwarded = [word for name in _FORWARDED for word in ("-x", name)] if hosts else []
    options = ["--map-by", ":OVERSUBSCRIBE", "--bind-to", "none"]
    return [launcher.path, "-n", str(ranks), *where, *forwarded, *options, *program]


def _where(launcher: Launcher, hosts: Sequence[HostSlots], folder: Path | None) -> list[str]:
    if not hosts:
        return []
    entries = [f"{entry.host}:{entry.slots}" for entry in hosts]
    listed = ",".join(entries)
    if folder is None or len(listed) <= _LONGEST_WORD:
        return ["--host" if launcher.kind == "openmpi" else "-hosts", listed]
    file = folder / "hosts"
    if launcher.kind == "openmpi":
        entries = [f"{entry.host} slots={entry.slots}" for entry in hosts]
    file.write_text("\n".join(entries) + "\n")
    return ["--hostfile" if launcher.kind == "openmpi" else "-f", str(file)]


def variables(ranks_here: int, folder: str, shared_memory: str, *, alone: bool = True) -> dict[str, str]:
    """What mpirun and the ranks find in their environment, apart from how to report.

    MPI's session files go to ``folder`` and its shared memory to ``shared_memory``, so that nothing
    stays behind when ranks are killed. More ranks than cores must yield while they poll. ``alone``: all
    ranks are on this host, and none listens for connections.
    """
    crowded = ranks_here > (os.cpu_count() or 1)
    ours = {
        "TMPDIR": folder,
        # Where the ranks run, the command line says alone: this host, or the hosts listed.
        "PRTE_MCA_prte_default_hostfile": "none",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_btl_sm_backing_directory": shared_memory,
        "OMPI_MCA_osc_sm_backing_directory": shared_memory,
        "OMPI_MCA_osc_rdma_backing_directory": shared_memory,
    }
    defaults = dict.fromkeys(_ONE_THREAD, "1")
    if crowded:
        defaults["OMPI_MCA_mpi_yield_when_idle"] = "1"
    if alone:
        defaults["OMPI_MCA_btl"] = "^tcp"
    theirs = {name: value for name, value in os.environ.items() if name != "HYDRA_HOST_FILE"}
    return {**defaults, **theirs, **ours}


def _kind(path: str) -> Kind:
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(f"{path} --version failed: {error}") from error
    if "Open MPI" in said or "open-mpi" in said:
        return "openmpi"
    if "HYDRA" in said:
        return "mpich"
    if "Intel(R) MPI" in said:
        return "intel"
    raise UnavailableError(
        f"{path} is neither the mpirun of Open MPI nor MPICH's: {said.strip()[:80]!r}",
        hint=f"{install('openmpi')}, or run the command inside your own mpirun or srun.",
    )
