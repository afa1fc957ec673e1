"""Health of network ports: link, PCIe, addresses and error counters, from the kernel's files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from probes.base import whole
from probes.health.model import NicHealth
from probes.paths import functions, uplink
from probes.sysfs import (
    ERROR_COUNTERS,
    INTERFACE_COUNTERS,
    TRANSPORT_COUNTERS,
    number,
    pci_config,
    text,
)
from probes.topology import Host, Nic, PciDevice

__all__ = ["read_nics", "regrown", "roce_mtu"]

# "400 Gb/sec (4X NDR)": the rate, and the number of lanes.
_RATE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*Gb/sec\s*\(([0-9]{1,2})X")
# The number of lanes of a sound InfiniBand port (InfiniBand Architecture Specification, volume 2).
_LANES = 4
# Headers that Linux subtracts from the MTU of an interface before it picks the MTU of RoCE (iboe_get_mtu in
# include/rdma/ib_addr.h): GRH 40, UDP 8, BTH 12, XRC 4, atomic 28 and ICRC 4 bytes. ``_RDMA_MTUS`` has every
# MTU of RDMA, largest first.
_ROCE_HEADER_BYTES = 96
_RDMA_MTUS = (4096, 2048, 1024, 512, 256)
_GID = re.compile(r"[0-9a-f]{4}(:[0-9a-f]{4}){7}")


@dataclass(frozen=True)
class _Gid:
    index: int
    type: str
    routable: bool
    ipv4: bool


def read_nics(root: Path, host: Host) -> tuple[NicHealth, ...]:
    """Return the ports of a machine whose topology was read from /sys below ``root``.

    Virtual functions are included and marked. Bridges, tunnels and other software interfaces are included
    only if they have an RDMA port, as a bond may.
    """
    devices = functions(host)
    sys = root / "sys"
    return tuple(
        _port(sys, replace(nic, bus_id=nic.bus_id or _behind(sys, nic, devices)), devices)
        for nic in host.nics
        if nic.physical or nic.bus_id or nic.rdma_device
    )


def _behind(sys: Path, nic: Nic, devices: Mapping[str, PciDevice]) -> str:
    """Return the PCI function of an RDMA device; "" if it has none."""
    name = (sys / "class/infiniband" / nic.rdma_device / "device").resolve().name
    return name if nic.rdma_device and name in devices else ""


def regrown(before: Sequence[NicHealth], after: Sequence[NicHealth], seconds: float) -> tuple[NicHealth, ...]:
    """Return the ports ``after``, with the counters that rose in ``seconds`` since ``before``.

    A port without an earlier reading stays as it is. A counter that fell was reset and is left out.
    """
    earlier = {nic.name: nic.counters for nic in before}
    return tuple(
        nic
        if nic.name not in earlier
        else replace(nic, seconds=seconds, grew=_rises(earlier[nic.name], nic.counters))
        for nic in after
    )


def roce_mtu(mtu: int) -> int | None:
    """Return the largest payload of a RoCE packet on an interface of this MTU; None if none fits."""
    return next((size for size in _RDMA_MTUS if size <= mtu - _ROCE_HEADER_BYTES), None)


def _rises(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    return {
        name: count - before[name] for name, count in after.items() if name in before and count > before[name]
    }


def _port(sys: Path, nic: Nic, devices: Mapping[str, PciDevice]) -> NicHealth:
    function = devices.get(nic.bus_id)
    virtual = function is not None and bool(function.physical_function)
    link = uplink(function, devices) if function is not None and not virtual else None
    card = sys / "class/infiniband" / nic.rdma_device
    rdma = card / "ports" / str(nic.port) if nic.rdma_device else None
    plain = NicHealth(
        name=nic.name,
        rdma_device=nic.rdma_device,
        port=nic.port,
        bus_id=nic.bus_id,
        link_layer=nic.link_layer,
        state=nic.state,
        physical_state=nic.physical_state,
        speed_mbit=nic.speed_mbit,
        mtu=nic.mtu,
        board=f"{function.vendor[2:]}:{function.device[2:]}" if function is not None else "",
        counters=dict(_counters(sys / "class/net" / nic.name, rdma)),
        pcie_gts=link.speed_gts if link else None,
        pcie_width=link.width if link else None,
        pcie_gts_most=link.max_speed_gts if link else None,
        pcie_width_most=link.max_width if link else None,
        relaxed_ordering=_relaxed_ordering(sys, nic),
        virtual=virtual,
    )
    return plain if rdma is None else _with_rdma(plain, card, rdma)


def _with_rdma(nic: NicHealth, card: Path, port: Path) -> NicHealth:
    gid = _best_gid(port) if nic.link_layer != "InfiniBand" else _Gid(0, "IB", True, False)
    return replace(
        nic,
        # The interface of InfiniBand (IPoIB) may be down while the port is used.
        state=text(port / "state").partition(":")[2].strip().lower() or nic.state,
        speed_most_mbit=_speed_of_all_lanes(nic, text(port / "rate")),
        rdma_mtu=roce_mtu(nic.mtu) if nic.mtu and nic.link_layer == "Ethernet" else None,
        firmware=text(card / "fw_ver"),
        board=text(card / "board_id") or text(card / "hca_type") or nic.board,
        gid_index=gid.index if gid else None,
        gid_type=gid.type if gid else "",
        gid_routable=gid.routable if gid else None,
    )


def _speed_of_all_lanes(nic: NicHealth, rate: str) -> int | None:
    """Return the port's speed with all four lanes; None unless it is known to run on fewer."""
    match = _RATE.match(rate)
    lanes = whole(match[2], 1) if match else None
    if (
        match is None
        or lanes is None
        or lanes >= _LANES
        or nic.link_layer != "InfiniBand"
        or not nic.speed_mbit
    ):
        return None
    return round(float(match[1]) * 1000 * _LANES / lanes)


def _relaxed_ordering(sys: Path, nic: Nic) -> bool | None:
    if not nic.bus_id:
        return None
    return pci_config.relaxed_ordering(pci_config.read_config(sys / "bus/pci/devices" / nic.bus_id))


def _counters(interface: Path, rdma: Path | None) -> Iterator[tuple[str, int]]:
    places: list[tuple[Path, tuple[str, ...]]] = [
        (interface / "statistics", INTERFACE_COUNTERS),
        (interface, ("carrier_changes",)),
    ]
    if rdma is not None:
        places += [(rdma / "counters", ERROR_COUNTERS), (rdma / "hw_counters", TRANSPORT_COUNTERS)]
    for folder, names in places:
        for name in names:
            count = number(folder / name)
            if count is not None:
                yield name, count


def _best_gid(port: Path) -> _Gid | None:
    """Return the GID to use: RoCE v2 before v1, routable before link-local, IPv4 before IPv6, first index."""
    found = list(_gids(port))
    return min(
        found,
        key=lambda gid: (gid.type != "RoCE v2", not gid.routable, not gid.ipv4, gid.index),
        default=None,
    )


def _gids(port: Path) -> Iterator[_Gid]:
    for entry in (port / "gids").glob("[0-9]*"):
        index, gid = whole(entry.name), text(entry)
        if index is None or not _GID.fullmatch(gid) or not gid.strip("0:"):
            continue
        kind = text(port / "gid_attrs/types" / entry.name)
        ipv4 = gid.startswith("0000:0000:0000:0000:0000:ffff:")
        # 169.254.0.0/16 and fe80::/10 reach no other network.
        local = gid.startswith("0000:0000:0000:0000:0000:ffff:a9fe:") or gid[:3] in (
            "fe8",
            "fe9",
            "fea",
            "feb",
        )
        yield _Gid(index, kind, not local, ipv4)
