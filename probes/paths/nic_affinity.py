"""The NIC nearest to a GPU, as NCCL and UCX choose it."""

from __future__ import annotations

from collections.abc import Sequence

from probes.paths.path_type import Paths
from probes.topology import Gpu, Host, Nic

__all__ = ["NEAR_TO_FAR", "nearest_nic", "nic_kind"]

# Types of paths from a GPU to a NIC. A path over the GPU's chip-to-chip link to the CPU is farther than one
# over PCIe switches (NCCL: PATH_P2C after PATH_PXB).
NEAR_TO_FAR = ("LOC", "NVL", "NVB", "PIX", "PXB", "C2C", "PHB", "NODE", "SYS", "?")


def nearest_nic(host: Host, gpu: Gpu) -> Nic | None:
    """Return the nearest physical NIC; GPUs that share several nearest NICs get them in turn."""
    paths = Paths(host)
    best = _nearest(paths, host, gpu)
    alike = [other for other in host.usable_gpus if _nearest(paths, host, other) == best]
    return best[alike.index(gpu) % len(best)] if best else None


def nic_kind(nic: Nic) -> str:
    """Return a NIC's speed and link layer as text; NICs with equal texts should perform alike."""
    speed = f"{nic.speed_mbit} Mbit/s" if nic.speed_mbit else ""
    return " ".join(word for word in (speed, nic.link_layer) if word)


def _nearest(paths: Paths, host: Host, gpu: Gpu) -> Sequence[Nic]:
    near = {nic.name: NEAR_TO_FAR.index(paths.between(gpu, nic)) for nic in host.physical_nics}
    return [nic for nic in host.physical_nics if near[nic.name] == min(near.values())]
