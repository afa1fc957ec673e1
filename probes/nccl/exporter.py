"""Export of a host as NCCL's topology XML for NCCL_TOPO_FILE; refused if it would mislead NCCL."""

from __future__ import annotations

from dataclasses import dataclass

from probes.base import DataError
from probes.nccl.write import Writer, is_bus_id
from probes.topology import Host

__all__ = ["MOST_NODES", "Exported", "export"]

# The most nodes that NCCL accepts (NCCL_TOPO_XML_MAX_NODES). Above _FEWER_NODES there is a warning, because
# some builds of NCCL failed with far fewer than the limit.
MOST_NODES = 256
_FEWER_NODES = 120


@dataclass(frozen=True)
class Exported:
    """The file, the number of nodes that NCCL counts in it, and warnings."""

    content: bytes
    nodes: int
    warnings: tuple[str, ...] = ()


def export(host: Host) -> Exported:
    """Return the file for one host; raises DataError with each reason why it would mislead NCCL."""
    if problems := _misleading(host):
        hint = "Detect on the machine itself: ccctl detect -o topology.json."
        raise DataError(host.name, problems, hint=hint)
    writer = Writer(host)
    system = writer.system()
    nodes = system.count()
    if nodes > MOST_NODES:
        writer.warnings.append(f"{nodes} nodes: NCCL refuses a file of more than {MOST_NODES}")
    elif nodes > _FEWER_NODES:
        text = f"{nodes} nodes: NCCL accepts up to {MOST_NODES}, but some of its builds fail with fewer"
        writer.warnings.append(text)
    return Exported(("\n".join(system.lines()) + "\n").encode(), nodes, tuple(writer.warnings))


def _misleading(host: Host) -> list[str]:
    found = [
        f"GPU{gpu.index}: its source names no bus id ({gpu.bus_id}), by which NCCL knows GPUs"
        for gpu in host.gpus
        if not is_bus_id(gpu.bus_id.partition("/")[0])
    ]
    known = {device.bus_id for device in host.pci}
    found += [
        f"GPU{gpu.index}: its place in the PCI tree is not known"
        for gpu in host.gpus
        if is_bus_id(gpu.bus_id.partition("/")[0]) and gpu.bus_id not in known
    ]
    if not host.gpus and not host.physical_nics:
        found.append("there is neither a GPU nor a NIC")
    return found
