"""Initialization of torch.distributed, by a store on rank 0, on ranks that ccctl launched."""

from __future__ import annotations

import os
import socket
from datetime import timedelta

import torch
import torch.distributed as dist

from exec.sockets import Group, interface_of
from probes.base import UnavailableError

__all__ = ["device_of", "join_process_group"]

# The longest wait for one address of rank 0: an address behind a firewall may never answer, so the next one
# is tried.
_REACHED_S = 5.0


def join_process_group(comm: Group, backend: str, timeout_s: float) -> None:
    """Initialize torch.distributed on the ranks of ``comm``; collective.

    Gloo uses the network interface by which the ranks reach rank 0, unless GLOO_SOCKET_IFNAME is set.
    """
    rank, size = comm.Get_rank(), comm.Get_size()
    timeout = timedelta(seconds=timeout_s)
    alone = len(set(comm.mesh.host)) == 1
    store = None
    if rank == 0:
        store = dist.TCPStore("0.0.0.0", 0, None, True, timeout, wait_for_workers=False)
    port = comm.bcast(store.port if store else None)
    where = ["127.0.0.1"] if alone else _addresses(comm)
    found = ("127.0.0.1", "127.0.0.1") if rank == 0 else _reach_store(where, port)
    every = comm.allgather(found)
    # Rank 0 uses the address at which another rank has reached it.
    address = every[1][0] if rank == 0 and size > 1 else found[1]
    if not alone:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface_of(address))
    if store is None:
        store = dist.TCPStore(found[0], port, None, False, timeout)
    dist.init_process_group(
        backend, store=dist.PrefixStore("train", store), rank=rank, world_size=size, timeout=timeout
    )


def device_of(backend: str, comm: Group) -> torch.device:
    """Return this rank's device; raises UnavailableError if NCCL has no GPU for it."""
    if backend != "nccl":
        return torch.device("cpu")
    before = [
        rank for rank in range(comm.Get_rank()) if comm.mesh.host[rank] == comm.mesh.host[comm.Get_rank()]
    ]
    if not torch.cuda.is_available() or torch.cuda.device_count() <= len(before):
        found = torch.cuda.device_count() if torch.cuda.is_available() else 0
        raise UnavailableError(
            f"nccl needs a GPU for each rank; host {socket.gethostname()} has {found}",
            hint="On processors: gloo or ccctl.",
        )
    torch.cuda.set_device(len(before))
    return torch.device("cuda", len(before))


def _addresses(comm: Group) -> list[str]:
    addresses = comm.mesh.known[0].addresses
    return list(dict.fromkeys(each.rpartition(":")[0] for each in addresses if not each.startswith("/")))


def _reach_store(addresses: list[str], port: int) -> tuple[str, str]:
    """Return (first address at which the store answers, this host's own address on that connection)."""
    for address in addresses:
        try:
            with socket.create_connection((address, port), _REACHED_S) as end:
                return address, str(end.getsockname()[0])
        except OSError:
            continue
    raise UnavailableError(f"rank 0's store is not reached at {', '.join(addresses)}, port {port}")
