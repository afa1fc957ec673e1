"""Start of ranks by mpirun: its choice, command line and environment, and its report of how ranks ended."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from exec.launcher import START, HostSlots
from exec.launcher.starters import starter
from exec.launcher.starters.starter import FORWARDED, how_it_ended
from probes.base import UnavailableError, install

__all__ = ["Launcher", "Mpirun", "command", "find", "start", "variables"]

Kind = Literal["openmpi", "mpich", "intel"]
# Longest wait for mpirun to end after a death: it gives the other ranks a second, kills them, and then names
# the first to die.
_GATHERING_S = 5.0
# Open MPI: "process rank 2 with PID 71 on node a exited on signal 9", filled to the width of a page.
_BLAMED = re.compile(r"process\s+rank\s+(\d+)\s+with\s+PID\s+(\d+)\s+on\s+node\s+(\S+)")
# Open MPI's message about a host whose daemon did not start, named up to the first dot.
_UNREACHED = re.compile(r"daemon failed to report back.*?Remote host:\s+(\S+)", re.DOTALL)
# Longest list of hosts on the command line: Linux accepts no word above 128 KiB there.
_LONGEST_WORD = 100_000


@dataclass(frozen=True)
class Mpirun:
    """One mpirun that has started the ranks of a run; mpirun and the ranks write to ``output``."""

    process: subprocess.Popen[bytes]
    output: Path
    label = "mpirun"

    @property
    def pids(self) -> frozenset[int]:
        return frozenset({self.process.pid})

    def ended(self, heard: Collection[int]) -> str:
        status = self.process.poll()
        if status is None:
            return ""
        unreached = dict.fromkeys(_UNREACHED.findall(self.output.read_text(errors="replace")))
        why = f" as it did not reach {', '.join(unreached)}" if unreached else ""
        # Popen was called with a list of words.
        return f"{self.process.args[0]!s} ended with status {status}{why}"  # type: ignore[index]

    def how_it_died(self, rank: int) -> str:
        """Return in words how mpirun ended, because its status is that of the first rank to die."""
        try:
            status = self.process.wait(_GATHERING_S)
        except subprocess.TimeoutExpired:
            return "died"
        ending = how_it_ended(status if status < 0 else 128 - status)
        return ending if "killed" in ending else f"died (mpirun ended with status {status})"

    def blamed(self) -> list[tuple[int, int | None, str]]:
        found = _BLAMED.findall(self.output.read_text(errors="replace"))
        return [(int(rank), int(pid), host) for rank, pid, host in found]

    def look_at(self, rank: int) -> None:
        """Do nothing: mpirun reports nothing about running processes."""

    def seen_running(self, rank: int) -> bool:
        return False

    def kill(self, rank: int) -> None:
        """Do nothing: mpirun would also kill the others. The rank leaves when its connection closes."""

    def restart(self, rank: int, start: int) -> None:
        raise UnavailableError("MPI does not let ranks in later")

    def failed_again(self, rank: int) -> str:
        return ""

    def terminate(self) -> None:
        self.process.terminate()

    def wait(self, limit_s: float) -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(limit_s)
        return self.process.poll() is not None

    def close(self) -> None:
        """Do nothing: nothing is open."""


def start(words: Sequence[str], env: Mapping[str, str], output: Path) -> Mpirun:
    """Start mpirun with the command line ``words`` (see `command`), in a session of its own."""
    with output.open("wb") as log:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=env,
            start_new_session=True,
        )
    return Mpirun(process, output)


@dataclass(frozen=True)
class Launcher:
    """A program that starts MPI ranks, and the kind of its command line."""

    path: str
    kind: Kind


def find() -> Launcher:
    """Return this Python environment's mpirun, else the first on PATH; raises UnavailableError if none."""
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
    """Return the command line that starts ``ranks`` processes of ``program``, on ``hosts`` or else here.

    A list of hosts that is too long for a command line is written to a file in ``folder``.
    """
    where = _where(launcher, hosts, folder)
    if launcher.kind != "openmpi":
        # Without this option MPICH's mpirun kills every rank when one dies, and may blame any of them.
        watched = ["-disable-auto-cleanup"] if launcher.kind == "mpich" else []
        return [launcher.path, *watched, "-n", str(ranks), *where, *program]
    # START is left out: MPI has no restarts, and Open MPI's mpirun warns about unset variables.
    names = [name for name in FORWARDED if name != START] if hosts else []
    forwarded = [word for name in names for word in ("-x", name)]
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
    """Return the environment of mpirun and the ranks, without the variables for reporting.

    MPI's session files go to ``folder`` and its shared memory to ``shared_memory``, so that nothing stays
    behind when ranks are killed. If there are more ranks than cores, ranks yield while they poll. With
    ``alone`` all ranks are on this host, so MPI neither listens for connections nor looks for libfabric's
    devices. In Open MPI 5 a process that finds no such device sleeps for a second
    (``mca_btl_ofi_component_close``).
    """
    crowded = ranks_here > (os.cpu_count() or 1)
    ours = {
        # Only the command line says where ranks run: on this host, or on the hosts listed.
        "PRTE_MCA_prte_default_hostfile": "none",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_btl_sm_backing_directory": shared_memory,
        "OMPI_MCA_osc_sm_backing_directory": shared_memory,
        "OMPI_MCA_osc_rdma_backing_directory": shared_memory,
    }
    defaults = {}
    if crowded:
        defaults["OMPI_MCA_mpi_yield_when_idle"] = "1"
    if alone:
        defaults["OMPI_MCA_btl"] = "^tcp,ofi"
    theirs = starter.variables(folder)
    theirs.pop("HYDRA_HOST_FILE", None)
    return {**defaults, **theirs, **ours}


def _kind(path: str) -> Kind:
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(f"{path} --version failed: {error}") from error
    version = done.stdout
    if "Open MPI" in version or "open-mpi" in version:
        return "openmpi"
    if "HYDRA" in version:
        return "mpich"
    if "Intel(R) MPI" in version:
        return "intel"
    if not version.strip():
        reason = next((line for line in done.stderr.splitlines() if line.strip()), "and says nothing")
        raise UnavailableError(f"{path} --version ends with status {done.returncode}: {reason.strip()[:200]}")
    raise UnavailableError(
        f"{path} is neither the mpirun of Open MPI nor MPICH's: {version.strip()[:80]!r}",
        hint=f"{install('openmpi')}, or run the command inside your own mpirun or srun.",
    )
