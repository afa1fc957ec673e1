"""Facts of two matched machines compared: hosts, NUMA nodes, GPUs, ports of network cards."""

from __future__ import annotations

from collections.abc import Iterator

from probes.diff.matching import Matched
from probes.diff.model import Difference, fact
from probes.paths import functions, numa_of
from probes.topology import Gpu, Host, Nic, label, place

__all__ = ["facts"]

# Relative difference up to which two memory sizes count as equal: kernels and firmware reserve a little.
_MEMORY_TOLERANCE = 0.02
_UP, _DOWN = (
    {"up", "active"},
    {"down", "init", "disabled", "armed", "dormant", "lowerlayerdown", "notpresent"},
)
# Methods whose topology may be incomplete: NCCL and nvidia-smi list only the parts that they use.
_PARTIAL = ("nccl_xml", "smi")


def facts(matched: Matched) -> Iterator[Difference]:
    """Yield every difference between the records of two machines."""
    yield from _host(matched.reference, matched.found)
    for expected, found in matched.gpus.both:
        yield from _gpu(matched, expected, found)
    for port, now in matched.nics.both:
        yield from _nic(matched, port, now)


def _host(reference: Host, found: Host) -> Iterator[Difference]:
    where, name = found.name, found.name
    yield from fact(where, name, "cores", reference.cores, found.cores)
    yield from fact(
        where, name, "memory", reference.memory_bytes, found.memory_bytes,
        tolerance=_MEMORY_TOLERANCE, shown=_gib,
    )  # fmt: skip
    nodes = {node.index: node for node in found.numa}
    whole = not {reference.method, found.method} & set(_PARTIAL)
    if whole and reference.numa and found.numa:
        yield from fact(where, name, "numa-nodes", len(reference.numa), len(found.numa))
    for node in reference.numa:
        other = nodes.get(node.index)
        if other is None or node.index < 0:
            continue
        subject, at = f"NUMA node {node.index}", f"{where}/numa{node.index}"
        for what, one, two in (
            ("cpu-vendor", node.vendor, other.vendor),
            ("cpu-model", _cpu(node.family, node.model), _cpu(other.family, other.model)),
            ("numa-cpus", node.cpus, other.cpus),
        ):
            yield from fact(at, subject, what, one, two, less="info")


def _gpu(matched: Matched, expected: Gpu, found: Gpu) -> Iterator[Difference]:
    where, name = place(matched.found, found), label(found)
    yield from fact(
        where, name, "memory", expected.memory_bytes, found.memory_bytes,
        tolerance=_MEMORY_TOLERANCE, shown=_gib,
    )  # fmt: skip
    yield from fact(where, name, "numa-moved", *_numa(matched, expected, found))
    yield from fact(where, name, "mig", _on(expected.mig), _on(found.mig))
    yield from fact(where, name, "usable", expected.usable, found.usable, shown=_yes)
    yield from fact(where, name, "gpudirect", expected.gpudirect, found.gpudirect, shown=_yes)
    yield from fact(where, name, "fabric-state", expected.fabric_state, found.fabric_state, less="critical")
    yield from _peers(matched, expected, found)


def _peers(matched: Matched, expected: Gpu, found: Gpu) -> Iterator[Difference]:
    """Yield the loss of direct access to peers; nothing if ``expected`` names no peers."""
    if not expected.peers or not found.usable:
        return
    now = {one.bus_id: other for one, other in matched.gpus.both}
    lost = [
        label(now[peer]) for peer in expected.peers if peer in now and now[peer].bus_id not in found.peers
    ]
    if lost:
        text = f"{label(found)}: cannot read {', '.join(lost)} directly any more"
        yield Difference("p2p-lost", "critical", place(matched.found, found), text, ", ".join(lost), "")


def _nic(matched: Matched, expected: Nic, found: Nic) -> Iterator[Difference]:
    where, name = place(matched.found, found), label(found)
    if expected.state in _UP and found.state in _DOWN:
        yield Difference(
            "link-down", "critical", where, f"{name}: the link is down", expected.state, found.state
        )
    elif expected.state in _DOWN and found.state in _UP:
        yield Difference("link-up", "info", where, f"{name}: the link is up", expected.state, found.state)
    yield from fact(where, name, "port-speed", expected.speed_mbit, found.speed_mbit, shown=_gbit)
    yield from fact(where, name, "link-layer", expected.link_layer, found.link_layer)
    yield from fact(where, name, "numa-moved", *_numa(matched, expected, found))
    yield from fact(where, name, "gpudirect", expected.gpudirect, found.gpudirect, shown=_yes)
    yield from fact(where, name, "mtu", expected.mtu, found.mtu)


def _numa(matched: Matched, expected: Gpu | Nic, found: Gpu | Nic) -> tuple[str, str]:
    nodes = []
    for host, device in ((matched.reference, expected), (matched.found, found)):
        index = numa_of(device, functions(host))
        nodes.append("" if index is None else f"NUMA node {index}")
    return nodes[0], nodes[1]


def _cpu(family: int | None, number: int | None) -> str:
    return "" if family is None or number is None else f"family {family} model {number}"


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.4g} GiB"


def _gbit(speed_mbit: int) -> str:
    return f"{speed_mbit / 1000:g} Gbit/s"


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _on(value: bool | None) -> str:
    return "" if value is None else "on" if value else "off"
