"""Reasons why a path is not better, as far as the topology shows.

The file ``nvlink_models.json`` lists GPU models by how they have NVLink: not at all, by a bridge over two
cards, or on the board.
"""

from __future__ import annotations

from collections.abc import Iterator

from probes.base import whole
from probes.paths.bandwidth import Bandwidths
from probes.paths.expected import Expected
from probes.paths.path_type import PathType
from probes.paths.pci_ids import first_match
from probes.paths.pci_tree import chain, flat, functions, is_same_model, numa_of, states_fabric, uplink
from probes.topology import FabricLink, Gpu, Host, Matrix, Nic, label

__all__ = ["PEER_REFUSALS", "nvlink_of", "reasons"]

# The driver's words for pairs of GPUs that cannot reach each other directly.
PEER_REFUSALS = {
    "CNS": "the chipset does not support it",
    "GNS": "these GPUs do not support it",
    "TNS": "the topology does not support it",
    "NS": "it is not supported",
    "DR": "it is disabled by a setting of the driver",
    "U": "the driver does not know",
}
_ABILITIES = {
    "p2p": "reach each other directly",
    "p2p_read": "read each other directly",
    "p2p_write": "write to each other directly",
    "p2p_nvlink": "reach each other over NVLink",
}
_NAMES = {"nvlink": "NVLink", "xgmi": "xGMI link", "c2c": "C2C link"}
# The P100 (sm_60) was the first GPU with NVLink.
_OLDEST_WITH_NVLINK = 60
# Later architectures without NVLink: graphics cards, Jetson and DRIVE modules, and GB10.
_NO_NVLINK = ("sm_61", "sm_62", "sm_72", "sm_87", "sm_89", "sm_110", "sm_120", "sm_121")


def reasons(host: Host, a: Gpu | Nic, b: Gpu | Nic, path: PathType, tables: Bandwidths) -> list[str]:
    """Return the reasons as sentences, most important first; empty if the topology shows none."""
    if path == "LOC":
        return []
    found: list[str] = []
    if isinstance(a, Gpu) and isinstance(b, Gpu):
        found += _fabric_reasons(host, a, b, path, tables)
        found += _peer_reasons(host, a, b)
    if path not in ("NVL", "NVB", "C2C"):
        found += _place_reasons(host, a, b, path)
        found += _link_reasons(host, a, b)
    found += _port_reasons(host, a, b, tables)
    return list(dict.fromkeys(found))


def nvlink_of(gpu: Gpu) -> str:
    """Return how GPUs of this model have NVLink: "none", "bridge" or "board"; "" if unknown."""
    number = whole(gpu.arch.removeprefix("sm_"))
    if gpu.arch in _NO_NVLINK or (number is not None and number < _OLDEST_WITH_NVLINK):
        return "none"
    return first_match("nvlink_models.json", gpu.name)


def _fabric_reasons(host: Host, a: Gpu, b: Gpu, path: PathType, tables: Bandwidths) -> Iterator[str]:
    for gpu in (a, b):
        yield from _lost_links(host, gpu, tables)
    if path == "NVL":
        return
    if a.vendor and b.vendor and a.vendor != b.vendor:
        yield f"{label(a)} is made by {a.vendor}, {label(b)} by {b.vendor}: only PCIe joins them"
        return
    if not states_fabric(host):
        yield "no source here knows NVLinks: only the driver can tell, and it was not asked or did not answer"
        return
    for gpu in (a, b):
        yield from _why_none(host, gpu)
    links = {gpu.bus_id: [link for link in _up(host, gpu) if link.kind != "c2c"] for gpu in (a, b)}
    if all(links.values()):
        yield from (_elsewhere(host, gpu, links[gpu.bus_id], other) for gpu, other in ((a, b), (b, a)))


def _lost_links(host: Host, gpu: Gpu, tables: Bandwidths) -> Iterator[str]:
    """Yield a sentence about NVLinks that are down or unused; some boards wire only a part."""
    down = sum(link.count for link in host.fabric if link.source == gpu.bus_id and link.state == "down")
    up = _count(host, gpu)
    like = max((_count(host, other) for other in host.gpus if is_same_model(host, gpu, other)), default=0)
    if down and (up < like or not up):
        yield f"{down} of {label(gpu)}'s {down + up} NVLinks {'is' if down == 1 else 'are'} down"
    elif down:
        yield f"{label(gpu)} uses {up} of its {down + up} NVLinks, as the other GPUs of its model here do"
    elif 0 < up < (most := tables.fabric("nvlink", gpu.arch).most) and nvlink_of(gpu) == "board":
        yield f"{label(gpu)} uses {up} NVLinks of {most} that its kind can have"


def _count(host: Host, gpu: Gpu) -> int:
    return sum(link.count for link in _up(host, gpu))


def _why_none(host: Host, gpu: Gpu) -> Iterator[str]:
    """Yield the reasons why this GPU has no NVLink that is up."""
    name = f"{label(gpu)} ({gpu.name or gpu.arch or gpu.bus_id})"
    if gpu.usable is False:
        yield f"{label(gpu)} is not given to this process, so the driver does not tell its NVLinks"
    if gpu.mig:
        yield f"MIG is on at {label(gpu)}: its parts reach no other GPU over NVLink"
    if gpu.fabric_state in ("not started", "in progress"):
        state = f"{gpu.fabric_state}; the fabric manager decides that"
        yield f"{label(gpu)} has not joined the NVLink fabric ({state})"
    if _up(host, gpu) or any(link.source == gpu.bus_id for link in host.fabric):
        return
    kind = nvlink_of(gpu) if gpu.vendor != "amd" else ""
    if kind == "none":
        yield f"{name} is a model without NVLink"
    elif kind == "bridge":
        yield f"{name} has NVLink only over a bridge between two cards, and reports none"
    elif kind == "board":
        yield f"{name} reports no NVLink though its model has them: driver or virtual machine hides them"
    else:
        yield f"{name} reports no {'xGMI link' if gpu.vendor == 'amd' else 'NVLink'}"


def _elsewhere(host: Host, gpu: Gpu, links: list[FabricLink], other: Gpu) -> str:
    labels = {one.bus_id: label(one) for one in host.gpus}
    ends = [f"{link.count} to {labels.get(link.target, link.target or 'an unknown end')}" for link in links]
    return (
        f"{label(gpu)}'s {_NAMES[links[0].kind]}s lead elsewhere ({', '.join(ends)}), none to {label(other)}"
    )


def _peer_reasons(host: Host, a: Gpu, b: Gpu) -> Iterator[str]:
    """Yield the driver's restrictions on peer access, each with the word that the driver uses."""
    for matrix in host.matrices:
        for one, other in ((a, b), (b, a)):
            word = matrix.cell(one.bus_id, other.bus_id)
            if matrix.what in _ABILITIES and word in PEER_REFUSALS:
                yield (
                    f"{label(a)} and {label(b)} cannot {_ABILITIES[matrix.what]}: {PEER_REFUSALS[word]} "
                    f"({_source(matrix)} says {word})"
                )
                break


def _source(matrix: Matrix) -> str:
    return "nvidia-smi" if matrix.method == "smi" else matrix.method


def _place_reasons(host: Host, a: Gpu | Nic, b: Gpu | Nic, path: PathType) -> Iterator[str]:
    devices = functions(host)
    up = [chain(device.bus_id, devices) for device in (a, b)]
    if path not in ("PIX", "PXB", "?") and flat(host):
        yield "no bridge is shown above any device: each is at its CPU, or a guest is not shown them"
    elif path in ("PHB", "NODE", "SYS"):
        tops = [[one.bus_id for one in own if one.role in ("upstream", "switch")][-1:] for own in up]
        above = [f"{label(end)} is below switch {top[0]}" if top else f"{label(end)} is below none"
                 for end, top in zip((a, b), tops, strict=True)]  # fmt: skip
        if all(up):
            yield f"they share no PCIe switch: {', '.join(above)}"
    numas = [numa_of(device, devices) for device in (a, b)]
    if path == "SYS":
        known = [
            f"{label(device)} is on NUMA node {numa}"
            for device, numa in zip((a, b), numas, strict=True)
            if numa is not None
        ]
        where = f"{', '.join(known)}: " if known else ""
        yield f"{where}traffic crosses the link between CPUs"
    for device, numa in zip((a, b), numas, strict=True):
        if path == "?" and numa is None:
            yield f"no source states the NUMA node of {label(device)}, nor a bridge above it that both share"
        elif path == "SYS" and numa is None:
            yield f"no source states the NUMA node of {label(device)}"


def _link_reasons(host: Host, a: Gpu | Nic, b: Gpu | Nic) -> Iterator[str]:
    devices = functions(host)
    for end in (a, b):
        for device in chain(end.bus_id, devices):
            wire = uplink(device, devices)
            if device.role in ("root", "downstream"):
                continue
            if wire.width and wire.max_width and wire.width < wire.max_width:
                whose = label(end) if device.bus_id == end.bus_id else device.bus_id
                yield f"the PCIe link of {whose} runs with {wire.width} lanes of {wire.max_width}"


def _port_reasons(host: Host, a: Gpu | Nic, b: Gpu | Nic, tables: Bandwidths) -> Iterator[str]:
    for gpu, nic in ((a, b), (b, a)):
        if isinstance(nic, Nic) and nic.state in ("down", "init", "disabled"):
            yield f"{label(nic)} is {nic.state}"
        if not isinstance(gpu, Gpu) or not isinstance(nic, Nic):
            continue
        if False in (gpu.gpudirect, nic.gpudirect):
            yield f"GPUDirect RDMA is off between {label(gpu)} and {label(nic)}: data goes over memory"
        other = Expected(host, tables).over_peer(gpu, nic)
        if other is not None:
            peer = next(one for one in host.gpus if one.bus_id == other.through)
            carried = f", {other.gbs:.4g} GB/s" if other.gbs else ""
            near = f"{label(peer)}, which is near {label(nic)}"
            yield f"NCCL can go over NVLink and {near}, instead (PXN{carried})"


def _up(host: Host, gpu: Gpu) -> list[FabricLink]:
    return [link for link in host.fabric if link.source == gpu.bus_id and link.state != "down"]
