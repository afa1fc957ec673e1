"""Links of equal hosts: inside a host, and between hosts through NICs and the switches of a fabric.

Inside a host, GPUs either have direct links, or share a switch through one egress and one ingress port each.
Every GPU has a link to every GPU of another host, through the egress port of its own NIC and the ingress port
of the other GPU's NIC. If there are fewer NICs than GPUs, consecutive GPUs share a NIC.

In each unit of hosts, a *rail* fabric joins the NICs at the same position of every host to one leaf switch,
the leaf of that rail. Traffic between rails or units crosses the spine: it takes an uplink of the source's
leaf, then the downlink of the same number to the destination's leaf. A leaf has one uplink for each NIC, or
fewer if it is oversubscribed. The destination fixes the uplink, as in `synth.networks.fat_tree`. Within a
unit, a schedule can avoid the spine if it first sends over NVLink to a GPU of the destination's rail (NCCL's
PXN).

Rail fabrics: Wang et al., Rail-only: A Low-Cost High-Performance Network for Training LLMs (2023); NVIDIA's
DGX SuperPOD reference architectures ("rail-aligned").
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from synth.network import Link

__all__ = [
    "NVLINK_ALPHA_S",
    "Fabric",
    "Machine",
    "Port",
    "host_links",
    "link_count",
    "ports_between",
    "reached_hosts",
]

# TACCL's measurements on NDv2 and DGX-2, as in `synth.networks.nominal`: NVLink 0.7 µs, between hosts 1.7 µs.
# No vendor publishes latencies of newer machines.
NVLINK_ALPHA_S = 0.7e-6
_NIC_ALPHA_S = 1.7e-6


@dataclass(frozen=True)
class Machine:
    """A host: GPUs of a ``model`` such as "H100", NICs, direct ``links`` (GPU, GPU, number).

    ``links`` is () if a switch joins all GPUs.

    ``trays`` is the number of equal parts, each with its own operating system. One NVLink domain joins the
    GPUs of all trays. In a rail fabric, the NICs at the same position in every tray share a leaf.
    ``multiprocessors`` is their number in a GPU; AMD calls them compute units.
    """

    gpus: int
    link_gbs: float
    links: tuple[tuple[int, int, int], ...]
    nics: int
    nic_gbs: float
    link_alpha_s: float = NVLINK_ALPHA_S
    nic_alpha_s: float = _NIC_ALPHA_S
    trays: int = 1
    model: str = ""
    multiprocessors: int = 0

    @property
    def rails(self) -> int:
        """The number of NICs in a tray."""
        return self.nics // self.trays

    def nic_of(self, gpu: int) -> int:
        return gpu * self.nics // self.gpus

    def first_gpu(self, nic: int) -> int:
        return -(-nic * self.gpus // self.nics)


@dataclass(frozen=True)
class Fabric:
    """The switches between ``units`` groups of ``hosts`` hosts each.

    | kind   | joins                                                                                  |
    |--------|----------------------------------------------------------------------------------------|
    | switch | all NICs, at full rate                                                                 |
    | rail   | the NICs of one rail in a unit at a leaf; leaves at a spine                            |
    | ring   | each host to the next and the one before it, by cables                                 |
    """

    hosts: int
    units: int = 1
    kind: str = "switch"
    oversubscription: int = 1

    @property
    def count(self) -> int:
        """The number of all hosts."""
        return self.hosts * self.units

    @property
    def distinct_hosts(self) -> int:
        """The number of hosts of a unit that other leaves reach over distinct uplinks."""
        return self.hosts // self.oversubscription


class Port(NamedTuple):
    """A port: a NIC's egress or ingress, or a leaf's uplink or downlink numbered like the NIC."""

    kind: str
    host: int
    nic: int


def host_links(machine: Machine, fabric: Fabric) -> Iterator[Link]:
    """Yield all links of the hosts, host by host."""
    names = _Names(machine, fabric)
    for host in range(fabric.count):
        yield from _inside(machine, host)
        for other in reached_hosts(fabric, host):
            yield from _between(machine, fabric, host, other, names)


def link_count(machine: Machine, fabric: Fabric) -> int:
    """Return the number of links, without listing them."""
    inside = 2 * sum(parallel for *_, parallel in machine.links) or machine.gpus * (machine.gpus - 1)
    return fabric.count * (inside + len(reached_hosts(fabric, 0)) * machine.gpus**2)


def reached_hosts(fabric: Fabric, host: int) -> list[int]:
    """Return the hosts to which a host has links, ascending."""
    if fabric.kind == "ring":
        return sorted({(host - 1) % fabric.count, (host + 1) % fabric.count} - {host})
    return [other for other in range(fabric.count) if other != host]


def ports_between(machine: Machine, fabric: Fabric, src: int, dst: int) -> tuple[Port, ...]:
    """Return the ports of the link from rank ``src`` to rank ``dst`` of another host."""
    (host, gpu), (other, other_gpu) = divmod(src, machine.gpus), divmod(dst, machine.gpus)
    nic, other_nic = machine.nic_of(gpu), machine.nic_of(other_gpu)
    ends = (Port("egress", host, nic), Port("ingress", other, other_nic))
    if fabric.kind != "rail":
        return ends
    unit, other_unit = host // fabric.hosts, other // fabric.hosts
    rail, (tray, other_rail) = nic % machine.rails, divmod(other_nic, machine.rails)
    if (unit, rail) == (other_unit, other_rail):
        return ends
    place = other % fabric.hosts % fabric.distinct_hosts
    return (
        *ends,
        Port("up", unit * fabric.hosts + place, tray * machine.rails + rail),
        Port("down", other_unit * fabric.hosts + place, tray * machine.rails + other_rail),
    )


def _inside(machine: Machine, host: int) -> Iterator[Link]:
    first, beta = host * machine.gpus, 1e-9 / machine.link_gbs
    for a, b, parallel in machine.links:
        for _ in range(parallel):
            yield Link(first + a, first + b, machine.link_alpha_s, beta)
            yield Link(first + b, first + a, machine.link_alpha_s, beta)
    if machine.links:
        return
    ranks = range(first, first + machine.gpus)
    for src in ranks:
        for dst in ranks:
            if src != dst:
                ports = (f"rank {src} switch egress", f"rank {dst} switch ingress")
                yield Link(src, dst, machine.link_alpha_s, beta, ports)


def _between(
    machine: Machine, fabric: Fabric, host: int, other: int, names: Mapping[Port, str]
) -> Iterator[Link]:
    beta = 1e-9 / machine.nic_gbs
    for a in range(machine.gpus):
        for b in range(machine.gpus):
            src, dst = host * machine.gpus + a, other * machine.gpus + b
            ports = ports_between(machine, fabric, src, dst)
            yield Link(src, dst, machine.nic_alpha_s, beta, tuple([names[port] for port in ports]))


class _Names(dict[Port, str]):
    """The name of each port, such as ``n3 nic2 egress``, or ``leaf 0.2 up 3``: unit 0, rail 2, uplink 3."""

    def __init__(self, machine: Machine, fabric: Fabric) -> None:
        super().__init__()
        self._machine, self._fabric = machine, fabric

    def __missing__(self, port: Port) -> str:
        self[port] = name = self._name(port)
        return name

    def _name(self, port: Port) -> str:
        if port.kind in ("egress", "ingress"):
            return f"n{port.host} nic{port.nic} {port.kind}"
        unit, place = divmod(port.host, self._fabric.hosts)
        tray, rail = divmod(port.nic, self._machine.rails)
        return f"leaf {unit}.{rail} {port.kind} {place * self._machine.trays + tray}"
