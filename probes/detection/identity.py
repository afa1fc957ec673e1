"""Identity of machines and devices: which descriptions are of one machine, and which devices are the same.

Equal bus ids prove nothing, because identical machines have devices at the same bus ids. Two files of one
kind are two machines. If both name GPUs by UUID, they are one machine only if they share a UUID.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from probes.topology import FabricLink, Finding, Gpu, Host, Matrix, Nic, Topology

__all__ = ["DescribedMachine", "by_machine"]

_NUMBERED = re.compile(r"gpu(\d+)")


@dataclass
class DescribedMachine:
    """One machine and all its descriptions, under the machine's name; first come those with bus ids."""

    parts: list[Topology] = field(default_factory=list)

    @property
    def hosts(self) -> list[Host]:
        """The host as each part describes it."""
        return [part.hosts[0] for part in self.parts]


def by_machine(topologies: Sequence[Topology]) -> tuple[list[DescribedMachine], list[str]]:
    """Return the machines behind several descriptions, in order, and a note on each that has several."""
    machines: list[DescribedMachine] = []
    for part in (single for topology in topologies for single in _singles(topology)):
        mine = next((machine for machine in machines if _is_same(machine.hosts, part.hosts[0])), None)
        if mine is None:
            machines.append(DescribedMachine([part]))
        else:
            mine.parts.append(part)
    notes = [_note(machine) for machine in machines if len(machine.parts) > 1]
    return [_under_one_name(machine) for machine in machines], notes


def _singles(topology: Topology) -> list[Topology]:
    """Return each host as a topology with its own findings; notes stay with the first host."""
    if len(topology.hosts) == 1:
        return [topology]
    return [
        Topology(
            (host,),
            tuple(finding for finding in topology.findings if finding.where.split("/")[0] == host.name),
            topology.notes if host is topology.hosts[0] else (),
        )
        for host in topology.hosts
    ]


def _note(machine: DescribedMachine) -> str:
    names = [f"{host.name} ({host.method})" for host in machine.hosts]
    return f"{', '.join(names)}: their devices show one machine; the first of them takes precedence"


def _is_same(known: Sequence[Host], host: Host) -> bool:
    if any(_same_kind(other, host) for other in known):
        return False
    uuids = {gpu.uuid for other in known for gpu in other.gpus if gpu.uuid}
    own = {gpu.uuid for gpu in host.gpus if gpu.uuid}
    if uuids and own:
        return bool(uuids & own)
    return all(_fits(other, host) for other in known)


def _same_kind(a: Host, b: Host) -> bool:
    if a.method != b.method:
        return False
    # nvidia-smi's two matrices may be two files of one machine.
    kinds = [{matrix.what for matrix in host.matrices} for host in (a, b)]
    return not (kinds[0] and kinds[1]) or bool(kinds[0] & kinds[1])


def _fits(a: Host, b: Host) -> bool:
    if a.gpus and b.gpus:
        if _has_numbers(a) or _has_numbers(b):
            return len(a.gpus) == len(b.gpus) and _shares_ports(a, b)
        here, there = ({gpu.bus_id for gpu in host.gpus} for host in (a, b))
        return here <= there or there <= here
    places = [{nic.bus_id for nic in host.nics if nic.bus_id} for host in (a, b)]
    return bool(places[0] & places[1])


def _has_numbers(host: Host) -> bool:
    return any(_NUMBERED.fullmatch(gpu.bus_id) for gpu in host.gpus)


def _shares_ports(a: Host, b: Host) -> bool:
    names = [{nic.rdma_device or nic.name for nic in host.physical_nics} for host in (a, b)]
    named = [{name for name in own if not name.startswith("NIC")} for own in names]
    return not (named[0] and named[1]) or bool(named[0] & named[1])


def _under_one_name(machine: DescribedMachine) -> DescribedMachine:
    parts = sorted(machine.parts, key=lambda part: _has_numbers(part.hosts[0]))
    name = parts[0].hosts[0].name
    done: list[Topology] = []
    for part in parts:
        (host,) = part.hosts
        names = _device_names([one.hosts[0] for one in done], host)
        found = tuple(_renamed_finding(finding, name, names) for finding in part.findings)
        done.append(Topology((replace(_renamed(host, names), name=name),), found, part.notes))
    return DescribedMachine(done)


def _device_names(known: Sequence[Host], host: Host) -> dict[str, str]:
    """Map devices of ``host`` to their names in the known descriptions, where they differ."""
    names: dict[str, str] = {}
    for other in known:
        if _has_numbers(host) and not _has_numbers(other):
            numbered = {f"gpu{index}": gpu.bus_id for index, gpu in _by_number(other)}
            names.update({gpu.bus_id: numbered[gpu.bus_id] for gpu in host.gpus if gpu.bus_id in numbered})
        taken = {nic.name for nic in host.nics}
        for nic in host.nics:
            same = [
                one.name for one in other.nics if one.name == nic.name or _same_port(one, nic, other, host)
            ]
            if same and nic.name not in (names.keys() | set(same)) and same[0] not in taken:
                names[nic.name] = same[0]
                taken.add(same[0])
    return names


def _by_number(host: Host) -> list[tuple[int, Gpu]]:
    """Return GPUs with the driver's numbers: in order of bus id, if their source has no numbers."""
    if all(gpu.index is not None for gpu in host.gpus):
        return [(gpu.index or 0, gpu) for gpu in host.gpus]
    return list(enumerate(sorted(host.gpus, key=lambda gpu: gpu.bus_id)))


def _same_port(known: Nic, nic: Nic, there: Host, here: Host) -> bool:
    if known.physical is False or nic.physical is False:
        return False
    if None not in (known.port, nic.port) and known.port != nic.port:
        return False
    if known.rdma_device and known.rdma_device == (nic.rdma_device or nic.name):
        return True
    alone = [sum(one.bus_id == nic.bus_id for one in host.nics) == 1 for host in (there, here)]
    return bool(nic.bus_id) and known.bus_id == nic.bus_id and all(alone)


def _renamed(host: Host, names: dict[str, str]) -> Host:
    if not names:
        return host

    def gpu(one: Gpu) -> Gpu:
        return replace(one, bus_id=to(one.bus_id), peers=tuple(map(to, one.peers)))

    def to(name: str) -> str:
        return names.get(name, name)

    def link(one: FabricLink) -> FabricLink:
        return replace(one, source=to(one.source), target=to(one.target))

    def matrix(one: Matrix) -> Matrix:
        return replace(one, devices=tuple(map(to, one.devices)))

    return replace(
        host,
        gpus=tuple(map(gpu, host.gpus)),
        nics=tuple(replace(nic, name=to(nic.name)) for nic in host.nics),
        fabric=tuple(map(link, host.fabric)),
        matrices=tuple(map(matrix, host.matrices)),
    )


def _renamed_finding(finding: Finding, name: str, names: dict[str, str]) -> Finding:
    device = finding.where.partition("/")[2]
    return replace(finding, where=f"{name}/{names.get(device, device)}")
