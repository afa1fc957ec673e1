"""Network ports from /sys/class/net and /sys/class/infiniband; entries of one port are joined.

A port has a device behind it. Bridges, veths and tunnels have none, whatever speed they report.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from probes.base import whole
from probes.sysfs.text import decimal, number, text
from probes.topology import Nic, PciDevice

__all__ = ["ERROR_COUNTERS", "INTERFACE_COUNTERS", "TRANSPORT_COUNTERS", "read_nics"]

# Files in the folder counters/ of an RDMA port: errors of the wire.
ERROR_COUNTERS = (
    "symbol_error",
    "link_error_recovery",
    "link_downed",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "port_xmit_discards",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
)
# Files in the folder hw_counters/ of an RDMA port: errors of the transport.
TRANSPORT_COUNTERS = (
    "out_of_sequence",
    "packet_seq_err",
    "local_ack_timeout_err",
    "implied_nak_seq_err",
    "rnr_nak_retry_err",
    "out_of_buffer",
    "rx_icrc_encapsulated",
    "np_cnp_sent",
    "rp_cnp_handled",
    "roce_adp_retrans",
)
# Files in the folder statistics/ of a network interface.
INTERFACE_COUNTERS = (
    "rx_crc_errors",
    "rx_errors",
    "rx_dropped",
    "rx_missed_errors",
    "tx_errors",
    "tx_dropped",
    "tx_carrier_errors",
)


@dataclass(frozen=True)
class _RdmaPort:
    device: str
    port: int
    bus_id: str
    link_layer: str
    state: str
    physical_state: str
    errors: dict[str, int]
    speed_mbit: int | None
    guid: str
    netdev: str
    numa: int | None


def read_nics(sys: Path, pci: Mapping[str, PciDevice], method: str) -> tuple[Nic, ...]:
    """Return every network interface, and every RDMA port without an interface."""
    nics = [_nic(entry, pci, method) for entry in sorted(sys.glob("class/net/*")) if _is_network(entry)]
    on_function = Counter(nic.bus_id for nic in nics)
    for port in _rdma_ports(sys, pci):
        alone = on_function[port.bus_id] == 1
        match = next((row for row, nic in enumerate(nics) if _is_same(nic, port, alone)), None)
        if match is None:
            nics.append(_bare(port, pci, method))
        else:
            nics[match] = _joined(nics[match], port)
    return tuple(nics)


def _is_network(entry: Path) -> bool:
    # Not every entry is an interface: the bonding driver has a control file there.
    return entry.name != "lo" and (entry / "type").exists()


def _nic(entry: Path, pci: Mapping[str, PciDevice], method: str) -> Nic:
    behind = entry / "device"
    bus_id = _bus_id(behind, pci)
    port = decimal(entry / "dev_port")
    return Nic(
        name=entry.name,
        method=method,
        physical=behind.exists() and not _is_virtual_function(bus_id, pci),
        bus_id=bus_id,
        port=None if port is None or not bus_id else port + 1,
        speed_mbit=number(entry / "speed") or None,
        state=text(entry / "operstate"),
        mtu=decimal(entry / "mtu"),
        mac=text(entry / "address"),
        numa=number(behind / "numa_node") if bus_id == "" else pci[bus_id].numa,
    )


def _bus_id(behind: Path, pci: Mapping[str, PciDevice]) -> str:
    """Return the PCI function of a device. A virtio device lies below its function in the tree."""
    if not behind.exists():
        return ""
    return next((part for part in reversed(behind.resolve().parts) if part in pci), "")


def _is_virtual_function(bus_id: str, pci: Mapping[str, PciDevice]) -> bool:
    return bool(bus_id and pci[bus_id].physical_function)


def _rdma_ports(sys: Path, pci: Mapping[str, PciDevice]) -> Iterator[_RdmaPort]:
    for device in sorted(sys.glob("class/infiniband/*")):
        folders = ((whole(folder.name), folder) for folder in device.glob("ports/[0-9]*"))
        for at, port in sorted((at, folder) for at, folder in folders if at is not None):
            rate = re.match(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*Gb/sec", text(port / "rate"))
            # "4: ACTIVE"
            state = text(port / "state").partition(":")[2].strip().lower()
            yield _RdmaPort(
                device=device.name,
                port=at,
                bus_id=_bus_id(device / "device", pci),
                link_layer=text(port / "link_layer"),
                state=state,
                physical_state=text(port / "phys_state").partition(":")[2].strip(),
                errors=dict(_errors(port / "counters")),
                # A down port's rate means nothing.
                speed_mbit=round(float(rate[1]) * 1000) if rate and state == "active" else None,
                guid=text(device / "node_guid"),
                netdev=text(port / "gid_attrs/ndevs/0"),
                numa=number(device / "device/numa_node"),
            )


def _errors(counters: Path) -> Iterator[tuple[str, int]]:
    for name in ERROR_COUNTERS:
        count = decimal(counters / name)
        if count is not None:
            yield name, count


def _is_same(nic: Nic, port: _RdmaPort, alone: bool) -> bool:
    """Return whether the interface is that port; ``alone``: the port's PCI function has one interface."""
    if nic.rdma_device:
        return False
    if port.netdev:
        return nic.name == port.netdev
    return bool(port.bus_id) and nic.bus_id == port.bus_id and (alone or nic.port == port.port)


def _joined(nic: Nic, port: _RdmaPort) -> Nic:
    return replace(
        nic,
        rdma_device=port.device,
        port=port.port,
        link_layer=port.link_layer,
        guid=port.guid,
        physical_state=port.physical_state,
        errors=port.errors,
        speed_mbit=nic.speed_mbit or port.speed_mbit,
    )


def _bare(port: _RdmaPort, pci: Mapping[str, PciDevice], method: str) -> Nic:
    return Nic(
        name=port.device if port.port == 1 else f"{port.device}:{port.port}",
        method=method,
        physical=not _is_virtual_function(port.bus_id, pci),
        bus_id=port.bus_id,
        port=port.port,
        speed_mbit=port.speed_mbit,
        state=port.state,
        physical_state=port.physical_state,
        errors=port.errors,
        numa=port.numa,
        rdma_device=port.device,
        link_layer=port.link_layer,
        guid=port.guid,
    )
