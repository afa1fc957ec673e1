"""The rendezvous of ranks that mpirun or srun has started: `init_method="ccctl://"`.

PyTorch's own `env://` reads what torchrun sets. mpirun and srun tell a process its rank by variables of
their own, and nothing of an address.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from exec.launcher.nodeset import parse
from probes.errors import UnavailableError

__all__ = ["SCHEME", "Rendezvous", "launched", "meet"]

SCHEME = "ccctl"

# (rank, number of ranks, ranks on this host): of Open MPI, MPICH and Intel MPI, Slurm.
_LAUNCHERS = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", ""),
)
# Below the ports that systems give to connections by themselves.
_FIRST_PORT, _PORTS = 20_000, 12_000


@dataclass(frozen=True)
class Rendezvous:
    """This process's ``rank`` among ``size``, and the address at which rank 0 serves the store."""

    rank: int
    size: int
    host: str
    port: int

    @property
    def url(self) -> str:
        """For PyTorch's rendezvous by TCP."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"tcp://{host}:{self.port}"


def launched(variables: Mapping[str, str]) -> Rendezvous | None:
    """What the environment of a rank says, or None where torchrun's variables do.

    MASTER_ADDR and MASTER_PORT come first. Otherwise rank 0 is on this host if all ranks are, or on the first
    host of Slurm's step; the port follows from the job's name. Raises UnavailableError where that does not
    tell, or nothing has started this process.
    """
    if "RANK" in variables and "WORLD_SIZE" in variables:
        return None
    for rank_name, size_name, local_name in _LAUNCHERS:
        if rank_name in variables and size_name in variables:
            rank, size = int(variables[rank_name]), int(variables[size_name])
            host = variables.get("MASTER_ADDR") or _host(variables, rank, size, local_name)
            return Rendezvous(rank, size, host, _port(variables, rank, size))
    raise UnavailableError(
        f"{SCHEME}://: no launcher has told this process its rank",
        hint="Start it by torchrun, mpirun or srun, or give init_process_group a rank and a world_size.",
    )


def meet(url: str, timeout: timedelta | None = None, **_options: Any) -> Iterator[tuple[Any, int, int]]:
    """PyTorch's handler of `ccctl://`: yields the store, the rank and the number of ranks."""
    from torch.distributed.rendezvous import rendezvous

    found = launched(os.environ)
    options = {} if timeout is None else {"timeout": timeout}
    if found is None:
        yield from rendezvous("env://", **options)
    else:
        yield from rendezvous(found.url, found.rank, found.size, **options)


def _host(variables: Mapping[str, str], rank: int, size: int, local_name: str) -> str:
    """The host of rank 0."""
    if size == 1 or variables.get(local_name) == str(size):
        return "127.0.0.1"
    if _by_slurm(variables, rank, size):
        if variables.get("SLURM_STEP_NUM_NODES") == "1":
            return "127.0.0.1"
        if hosts := variables.get("SLURM_STEP_NODELIST"):
            return parse(hosts)[0].host
    raise UnavailableError(
        f"{SCHEME}://: the ranks are on several hosts, and nothing says on which rank 0 is",
        hint="Name it: mpirun -x MASTER_ADDR=node1, with MPICH mpirun -genv MASTER_ADDR node1.",
    )


def _port(variables: Mapping[str, str], rank: int, size: int) -> int:
    """MASTER_PORT, or one that follows from what names the job."""
    if given := variables.get("MASTER_PORT"):
        return int(given)
    names = ("SLURM_JOB_ID", "SLURM_STEP_ID") if _by_slurm(variables, rank, size) else ("PMIX_NAMESPACE",)
    job = "/".join(variables.get(name, "") for name in names).strip("/")
    if not job:
        raise UnavailableError(
            f"{SCHEME}://: nothing tells the ranks of this job from those of another",
            hint="Name a free port of rank 0's host: with MPICH mpirun -genv MASTER_PORT 29500.",
        )
    return _FIRST_PORT + zlib.crc32(job.encode()) % _PORTS


def _by_slurm(variables: Mapping[str, str], rank: int, size: int) -> bool:
    """Whether Slurm's variables are of this rank: what mpirun starts within a step inherits its parent's."""
    return variables.get("SLURM_PROCID") == str(rank) and variables.get("SLURM_STEP_NUM_TASKS") == str(size)
