"""Derived facts: numbers, names and speeds that follow from a merged topology and the tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

from probes.base import plural
from probes.detection.unknown_links import unknown_nvlinks
from probes.paths import (
    Bandwidths,
    architecture,
    architecture_of_model,
    functions,
    is_same_model,
    product_name,
)
from probes.topology import FabricLink, Finding, Gpu, Host, Nic, PciDevice, Topology

__all__ = ["complete"]

_TABLE, _ASSUMED = "table", "assumed"
# A slower port is reported only beside at least this many other ports of its model; with fewer, it may be
# meant for storage or login.
_FEWEST_ALIKE = 3
_Placed = TypeVar("_Placed", PciDevice, Gpu, Nic)


def complete(topology: Topology, tables: Bandwidths) -> Topology:
    """Return the topology with GPU numbers and names, link rates in GB/s, and doubts as findings."""
    findings = list(topology.findings)
    notes = list(topology.notes)
    hosts = []
    for before in topology.hosts:
        host = _with_only_node(before)
        host = replace(host, gpus=_gpus(host), nics=tuple(sorted(host.nics, key=_order)))
        host = replace(host, fabric=tuple(_with_speed(link, host, tables) for link in host.fabric))
        findings += [*_doubts(host, tables), *_assumed_speeds(host)]
        notes += [*_kept_away(host), *_partitioned(host)]
        hosts.append(replace(host, nics=tuple(_plausible(nic, tables) for nic in host.nics)))
    return Topology(tuple(hosts), tuple(findings), tuple(notes))


def _with_only_node(host: Host) -> Host:
    """Put devices without a NUMA node (the kernel writes -1) on the host's only node, if it has one node.

    Hosts described by nvidia-smi or rocm-smi stay as they are: these list only the nodes of GPUs, so there
    may be others.
    """
    if len(host.numa) != 1 or host.numa[0].index < 0 or host.numa[0].method in ("smi", "rocm_smi"):
        return host
    index = host.numa[0].index

    def placed(record: _Placed) -> _Placed:
        if record.numa is not None:
            return record
        return replace(record, numa=index, method_of={**record.method_of, "numa": "only node"})

    return replace(
        host,
        pci=tuple(map(placed, host.pci)),
        gpus=tuple(map(placed, host.gpus)),
        nics=tuple(placed(nic) if nic.physical else nic for nic in host.nics),
    )


def _gpus(host: Host) -> tuple[Gpu, ...]:
    """Return the GPUs numbered as in their source; free numbers replace missing or repeated numbers."""
    driven = any(gpu.usable for gpu in host.gpus)
    devices = functions(host)
    given = [gpu.index for gpu in host.gpus if gpu.index is not None]
    free = iter(n for n in range(len(host.gpus) + max(given, default=0) + 1) if n not in given)
    seen: set[int] = set()
    found = []
    for gpu in sorted(host.gpus, key=lambda gpu: (gpu.index is None, gpu.index or 0)):
        index = next(free) if gpu.index is None or gpu.index in seen else gpu.index
        seen.add(index)
        function = devices.get(gpu.bus_id)
        changed = _from_table(replace(gpu, index=index), function)
        if driven and gpu.usable is None and gpu.vendor == "nvidia":
            changed = replace(changed, usable=False)
        found.append(changed)
    return tuple(found)


def _from_table(gpu: Gpu, function: PciDevice | None) -> Gpu:
    """Add name and architecture by the ids of the PCI function, if no source has them."""
    if function is None:
        return gpu
    known = {
        "name": product_name(function.vendor, function.device),
        "arch": architecture(function.vendor, function.device),
    }
    taken = {name: value for name, value in known.items() if value and not getattr(gpu, name)}
    methods = {**gpu.method_of, **dict.fromkeys(taken, _TABLE)}
    return replace(gpu, name=taken.get("name", gpu.name), arch=taken.get("arch", gpu.arch), method_of=methods)


def _order(nic: Nic) -> tuple[bool, bool]:
    return (not nic.physical, not nic.bus_id)


def _with_speed(link: FabricLink, host: Host, tables: Bandwidths) -> FabricLink:
    gpu = next((gpu for gpu in host.gpus if gpu.bus_id == link.source), None)
    if link.target == "cpu" and gpu and gpu.numa is not None:
        link = replace(link, target=f"numa{gpu.numa}")
    if link.kind == "c2c" or link.gbs is not None or link.state == "down":
        return link
    arch = gpu.arch or architecture_of_model(gpu.name) if gpu else ""
    generation = tables.fabric(link.kind, arch, link.version)
    methods = {**link.method_of, "gbs": _TABLE if generation.wire_gbs else _ASSUMED}
    if generation.version and not link.version:
        return replace(
            link, gbs=generation.gbs, version=generation.version, method_of={**methods, "version": _TABLE}
        )
    return replace(link, gbs=generation.gbs, method_of=methods)


def _plausible(nic: Nic, tables: Bandwidths) -> Nic:
    return replace(nic, speed_mbit=None) if (nic.speed_mbit or 0) > tables.most_nic_mbit else nic


def _kept_away(host: Host) -> Iterator[str]:
    away = sum(gpu.usable is False for gpu in host.gpus)
    if away:
        yield f"{host.name}: {away} NVIDIA GPUs on the PCI bus are not given to this process by the driver"


def _partitioned(host: Host) -> Iterator[str]:
    cut = [f"GPU{gpu.index}" for gpu in host.gpus if gpu.mig]
    if cut:
        yield f"{host.name}: {', '.join(cut)} cut into MIG instances, which cannot use NVLink to other GPUs"


def _doubts(host: Host, tables: Bandwidths) -> Iterator[Finding]:
    for nic in host.nics:
        if (nic.speed_mbit or 0) > tables.most_nic_mbit:
            text = f"speed {nic.speed_mbit} Mbit/s is more than any port has: taken as unknown"
            yield Finding("bogus-speed", f"{host.name}/{nic.name}", text)
    unknown = unknown_nvlinks(host)
    if unknown is not None:
        yield unknown
    yield from _link_doubts(host, tables)
    yield from _width_doubts(host)
    yield from _port_doubts(host)
    for gpu in host.gpus:
        if gpu.fabric_state in ("not started", "in progress"):
            text = f"its NVLink domain is not ready ({gpu.fabric_state}): does the fabric manager run?"
            yield Finding("fabric-not-ready", f"{host.name}/{gpu.bus_id}", text)


def _link_doubts(host: Host, tables: Bandwidths) -> Iterator[Finding]:
    counts = {(link.source, link.target): link.count for link in host.fabric if link.target_kind == "gpu"}
    for (source, target), count in counts.items():
        back = counts.get((target, source), 0)
        if back < count:
            text = f"reports {count} links to {target}, which reports {back} back"
            yield Finding("one-sided", f"{host.name}/{source}", text)
    yield from _links_down(host)
    for gpu in host.gpus:
        own = [link for link in host.fabric if link.source == gpu.bus_id and link.kind != "c2c"]
        total = sum(link.count for link in own)
        most = tables.fabric(own[0].kind, gpu.arch).most if own else 0
        if total > most:
            text = f"{total} {own[0].kind} links, but such a GPU can have {most} at most"
            yield Finding("too-many-links", f"{host.name}/{gpu.bus_id}", text)


def _assumed_speeds(host: Host) -> Iterator[Finding]:
    """Yield a finding for links whose speed is assumed, because no source and no table has it."""
    printed = "add what nvidia-smi nvlink -s prints to the file"
    dumped = "add the topology that RCCL writes to the file of NCCL_TOPO_DUMP_FILE"
    for kind, name, method, source in (
        ("nvlink", "an NVLink", "smi", printed),
        ("xgmi", "an xGMI link", "rocm_smi", dumped),
    ):
        links = [link for link in host.fabric if link.kind == kind and link.method_of.get("gbs") == _ASSUMED]
        if links:
            gpus = plural(len({link.source for link in links}), "GPU")
            text = f"no source states the speed of {name} of its {gpus}: {links[0].gbs:g} GB/s is assumed;"
            source = source if host.method == method else "a table of your own (CCCTL_BANDWIDTH) can state it"
            yield Finding("assumed-speed", host.name, f"{text} {source}")


def _links_down(host: Host) -> Iterator[Finding]:
    """Yield GPUs with fewer links up than another GPU of the same model.

    Links that are down on all GPUs may not be wired, so they are not reported. A GPU that lists no link as
    down is compared only if GPUs like it are on NVSwitches: a bridge may join some GPUs and not others, but a
    board with switches joins all.
    """
    up, down = (
        {
            gpu.bus_id: sum(
                link.count
                for link in host.fabric
                if link.source == gpu.bus_id and link.kind != "c2c" and (link.state == "down") == is_down
            )
            for gpu in host.gpus
        }
        for is_down in (False, True)
    )
    for gpu in host.gpus:
        equal = [other for other in host.gpus if is_same_model(host, gpu, other)]
        alike = max(up[other.bus_id] for other in equal)
        is_switched = any(_is_on_switch(host, other) and other.arch == gpu.arch for other in equal)
        is_joined = is_switched and gpu.usable is not False and not gpu.mig
        compared = is_joined or down[gpu.bus_id]
        if compared and up[gpu.bus_id] < alike:
            gone = f"{plural(down[gpu.bus_id], 'link')} down, " if down[gpu.bus_id] else ""
            text = f"{gone}{up[gpu.bus_id]} up; others like it have {alike} up"
            yield Finding("link-down", f"{host.name}/{gpu.bus_id}", text)


def _is_on_switch(host: Host, gpu: Gpu) -> bool:
    return any(link.source == gpu.bus_id and link.target_kind == "switch" for link in host.fabric)


def _port_doubts(host: Host) -> Iterator[Finding]:
    """Yield InfiniBand ports that are not active; an Ethernet port without a cable is normal."""
    for nic in host.physical_nics:
        if nic.link_layer == "InfiniBand" and nic.state in ("down", "init", "armed", "initialize"):
            phase = f" ({nic.physical_state})" if nic.physical_state else ""
            text = f"InfiniBand port is {nic.state}{phase}, not active"
            yield Finding("port-down", f"{host.name}/{nic.name}", text)
    yield from _slow_port(host)


def _slow_port(host: Host) -> Iterator[Finding]:
    """Yield the one port that is slower than all others of its model; several may be slower by intent."""
    models = functions(host)
    alike: dict[tuple[str, str, str], list[Nic]] = {}
    for nic in host.physical_nics:
        device = models.get(nic.bus_id)
        if nic.speed_mbit and device is not None:
            alike.setdefault((device.vendor, device.device, nic.link_layer), []).append(nic)
    for nics in alike.values():
        slowest, *others = sorted(nics, key=lambda nic: nic.speed_mbit or 0)
        rates = {nic.speed_mbit for nic in others}
        if len(others) >= _FEWEST_ALIKE and len(rates) == 1 and slowest.speed_mbit not in rates:
            normal = others[0].speed_mbit or 0
            text = (
                f"{(slowest.speed_mbit or 0) / 1000:g} Gbit/s; the {len(others)} other ports of its model "
                f"have {normal / 1000:g} Gbit/s"
            )
            yield Finding("slow-port", f"{host.name}/{slowest.name}", text)


def _width_doubts(host: Host) -> Iterator[Finding]:
    """Yield PCIe links of reduced width; speed is ignored, because idle GPUs lower it to save power."""
    devices = functions(host)
    carriers = {gpu.bus_id for gpu in host.gpus} | {nic.bus_id for nic in host.physical_nics}
    for bus_id in sorted(carriers & devices.keys()):
        device = devices[bus_id]
        above = devices.get(device.parent)
        most = min((w for w in (device.max_width, above.max_width if above else None) if w), default=0)
        if device.width and device.width < most:
            text = f"PCIe link has {device.width} of the {most} lanes that both its ends support"
            yield Finding("narrow-link", f"{host.name}/{bus_id}", text)
