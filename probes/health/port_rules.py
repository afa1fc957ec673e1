"""Rules for network ports: link, PCIe, error counters and RoCE."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from probes.health.model import HostHealth, HostProblem, NicHealth, Severity

__all__ = ["port_problems"]

# Kind, severity, text and remedy of a problem.
_Found = tuple[str, Severity, str, str]


@dataclass(frozen=True)
class _Counter:
    """A counter of a port: its events, the severity of growth, and the highest normal total (None: any)."""

    events: str
    growth: Severity
    most: int | None
    remedy: str


_CABLE = "clean or replace the cable and the transceivers of {port}, then look at the switch's port"
_LOSS = "look for a congested or misconfigured switch: flow control (PFC) and ECN of the port's priority"
_DROPS = "raise the rings of the interface (ethtool -G {port} rx 8192) and look at the CPUs of its interrupts"
# The highest normal totals come from infiniband-diags (etc/error_thresholds): 10 for errors of the wire, 100
# for errors that other parts of the network cause. A loss of the carrier and its return are two changes, so
# 20 changes are 10 losses.
_WIRE, _REMOTE, _CHANGES = 10, 100, 20
_COUNTERS: dict[str, _Counter] = {
    "symbol_error": _Counter("symbol errors", "fault", _WIRE, _CABLE),
    "link_error_recovery": _Counter("recoveries of the link", "fault", _WIRE, _CABLE),
    "link_downed": _Counter("losses of the link", "fault", _WIRE, _CABLE),
    "port_rcv_errors": _Counter("damaged packets received", "fault", _WIRE, _CABLE),
    "port_rcv_remote_physical_errors": _Counter("packets damaged on their way", "remark", _REMOTE, _CABLE),
    "local_link_integrity_errors": _Counter("failures of the link's integrity", "fault", _WIRE, _CABLE),
    "excessive_buffer_overrun_errors": _Counter("overruns of the port's buffer", "fault", _WIRE, _CABLE),
    "port_xmit_discards": _Counter("packets discarded before sending", "remark", _REMOTE, _LOSS),
    "rx_icrc_encapsulated": _Counter("RoCE packets with a wrong checksum", "fault", _WIRE, _CABLE),
    "out_of_sequence": _Counter("packets out of sequence", "remark", None, _LOSS),
    "packet_seq_err": _Counter("requests to send packets again", "remark", None, _LOSS),
    "local_ack_timeout_err": _Counter("acknowledgements that did not come", "remark", None, _LOSS),
    "rx_crc_errors": _Counter("frames with a wrong checksum", "fault", _WIRE, _CABLE),
    "carrier_changes": _Counter("changes of the carrier", "fault", _CHANGES, _CABLE),
    "tx_carrier_errors": _Counter("losses of the carrier while sending", "fault", _WIRE, _CABLE),
    "rx_missed_errors": _Counter("frames that the NIC had no room for", "remark", None, _DROPS),
}
# Pairs of a speed in GT/s and the data bits that a PCIe lane carries per transfer from that speed on. The
# encoding is 8b/10b at first, 128b/130b from 8 GT/s, none from 64 GT/s (PCI Express Base Specification,
# chapter 4).
_DATA_BITS = ((64.0, 1.0), (8.0, 128 / 130), (0.0, 8 / 10))
# The largest payload of RDMA, and an interface's MTU that has room for it and RoCE's headers.
_MOST_RDMA_MTU, _ROCE_MTU = 4096, 4200
# NICs from 25 Gbit/s carry the traffic of jobs; a server's management port has 1 or 10 Gbit/s.
_FAST_MBIT = 25_000
# The number of lanes of a sound InfiniBand port. If lanes fail, it falls back to one lane, which is a fault.
# Two lanes may be what was ordered.
_LANES = 4


def port_problems(health: HostHealth, *, has_gpus: bool) -> Iterator[HostProblem]:
    """Yield what is wrong with each port of a host; virtual functions are left out."""
    ports = [nic for nic in health.nics if not nic.virtual]
    for nic in ports:
        twins = _twins(nic, ports)
        found = [*_down(nic, twins), *_slow(nic, twins), *_pcie(nic), *_counters(nic), *_roce(nic)]
        if has_gpus:
            found += _ordering(nic)
        for kind, severity, text, remedy in found:
            yield HostProblem(health.host, _name(nic), kind, severity, text, remedy)


def _name(nic: NicHealth) -> str:
    device = f"{nic.rdma_device}:{nic.port}" if (nic.port or 1) > 1 else nic.rdma_device
    return nic.name if not device or device == nic.name else f"{device} ({nic.name})"


def _twins(nic: NicHealth, ports: Sequence[NicHealth]) -> list[NicHealth]:
    """Return the ports of equal number and PCI function on the host's other cards of this model."""
    card, _, function = nic.bus_id.partition(".")
    return [
        port
        for port in ports
        if nic.rdma_device
        and port.board == nic.board
        and port.port == nic.port
        and port.bus_id.partition(".")[0] != card
        and port.bus_id.partition(".")[2] == function
    ]


def _down(nic: NicHealth, twins: Sequence[NicHealth]) -> Iterator[_Found]:
    """Yield a problem if an RDMA port is not active.

    The problem is a fault if most ports like this one are active, or if the port was up before and is not
    disabled. Otherwise the port may be unused.
    """
    if not nic.rdma_device or nic.state in ("", "active"):
        return
    losses = nic.counters.get("link_downed", 0)
    # A port that was never connected has lost no link, and its carrier has changed at most once, at its
    # start.
    was_up = losses > 0 or nic.counters.get("carrier_changes", 0) > 1
    others = sum(twin.state == "active" for twin in twins)
    used = 2 * others > max(len(twins), 2)
    disabled = nic.physical_state == "Disabled"
    phase = f" ({nic.physical_state})" if nic.physical_state else ""
    before = f", {losses} losses of its link so far" if losses else ""
    normal = f"{others} of {len(twins)} ports like it are active" if used else "a port in use is active"
    check = f"check the cable of {nic.name} and the switch's port"
    further = (
        "see that a subnet manager runs (sminfo)"
        if nic.link_layer == "InfiniBand"
        else f"bring it up: ip link set {nic.name} up"
    )
    yield (
        "port_down",
        "fault" if used or (was_up and not disabled) else "remark",
        f"the port is {nic.state}{phase}{before}; {normal}",
        f"{'' if used else 'if it is to be used, '}{check}, and {further}",
    )


def _slow(nic: NicHealth, twins: Sequence[NicHealth]) -> Iterator[_Found]:
    """Yield a problem if a port is slower than most ports like it, or than it can be."""
    if not nic.speed_mbit:
        return
    faster = [twin.speed_mbit for twin in twins if (twin.speed_mbit or 0) > nic.speed_mbit]
    behind = len(faster) > 1 and 2 * len(faster) > len(twins)
    # A management port may well be connected to a slower switch.
    most_mbit = nic.speed_most_mbit or 0 if nic.rdma_device or nic.speed_mbit >= _FAST_MBIT else 0
    if not behind and most_mbit <= nic.speed_mbit:
        return
    lanes_lost = nic.link_layer == "InfiniBand" and _LANES * nic.speed_mbit <= most_mbit
    most = _gbit(min(speed for speed in faster if speed) if behind else most_mbit)
    normal = (
        f"{len(faster)} of {len(twins)} ports like it have at least {most}" if behind else f"it can do {most}"
    )
    yield (
        "port_slow",
        "fault" if behind or lanes_lost else "remark",
        f"the port runs at {_gbit(nic.speed_mbit)}; {normal}",
        f"see that cable, transceiver and switch port of {nic.name} are made for {most} (ethtool, ibstat)",
    )


def _pcie(nic: NicHealth) -> Iterator[_Found]:
    """Yield a problem if a PCIe link is slower than both its ends can be, or slower than its port."""
    severity: Severity = "fault" if nic.rdma_device or (nic.speed_mbit or 0) >= _FAST_MBIT else "remark"
    seat = f"reseat the NIC at {nic.bus_id}, clean its contacts, and check the slot's setting in the BIOS"
    narrow = bool(nic.pcie_width and nic.pcie_width_most and nic.pcie_width < nic.pcie_width_most)
    slow = bool(nic.pcie_gts and nic.pcie_gts_most and nic.pcie_gts < nic.pcie_gts_most)
    if narrow:
        text = f"its PCIe link has {nic.pcie_width} lanes; both its ends can do {nic.pcie_width_most}"
        yield "pcie_width", severity, text, seat
    if slow:
        text = f"its PCIe link runs at {nic.pcie_gts:g} GT/s; both its ends can do {nic.pcie_gts_most:g} GT/s"
        yield "pcie_speed", severity, text, seat
    if not narrow and not slow and nic.pcie_gts and nic.pcie_width and nic.speed_mbit:
        bits = next(bits for least_gts, bits in _DATA_BITS if nic.pcie_gts >= least_gts)
        carried_mbit = 1000 * nic.pcie_gts * nic.pcie_width * bits
        if carried_mbit < nic.speed_mbit:
            yield (
                "pcie_below_port",
                "remark",
                f"its slot carries {_gbit(carried_mbit)} (PCIe {nic.pcie_gts:g} GT/s x{nic.pcie_width}); "
                f"its port can do {_gbit(nic.speed_mbit)}",
                f"move the NIC at {nic.bus_id} to a slot with more lanes or a newer generation of PCIe",
            )


def _counters(nic: NicHealth) -> Iterator[_Found]:
    for name, counter in _COUNTERS.items():
        grown, total, most = nic.grew.get(name, 0), nic.counters.get(name, 0), counter.most
        remedy = counter.remedy.format(port=nic.name)
        if grown:
            text = f"{grown} {counter.events} within {nic.seconds:.3g} s ({name}); 0 is normal"
            yield "counter_grows", counter.growth, text, remedy
        elif most is not None and total > most:
            text = f"{total} {counter.events} since its driver was loaded ({name}); up to {most} are normal"
            yield "counter_high", "remark", text, remedy


def _roce(nic: NicHealth) -> Iterator[_Found]:
    if nic.link_layer != "Ethernet" or nic.state != "active":
        return
    if nic.rdma_mtu is not None and nic.rdma_mtu < _MOST_RDMA_MTU:
        yield (
            "rdma_mtu",
            "remark",
            f"RoCE packets carry {nic.rdma_mtu} bytes as the MTU is {nic.mtu}; {_MOST_RDMA_MTU} are normal",
            f"if the switches allow it: ip link set {nic.name} mtu 9000 ({_ROCE_MTU} is enough)",
        )
    if nic.gid_index is not None and (nic.gid_type != "RoCE v2" or nic.gid_routable is False):
        kind = "link-local" if nic.gid_type == "RoCE v2" else f"of type {nic.gid_type or 'unknown'}"
        yield (
            "roce_gid",
            "remark",
            f"its best GID (index {nic.gid_index}) is {kind}; RoCE v2 with an IP address is normal",
            f"give the interface an address: ip address add ADDRESS/PREFIX dev {nic.name}",
        )


def _ordering(nic: NicHealth) -> Iterator[_Found]:
    if nic.relaxed_ordering is False and nic.rdma_device:
        yield (
            "relaxed_ordering",
            "remark",
            "relaxed ordering is off in its PCIe Device Control register; on is normal on a GPU host",
            f"setpci -s {nic.bus_id} CAP_EXP+8.w=0010:0010 (until the next start; the BIOS keeps it)",
        )


def _gbit(mbit: float) -> str:
    return f"{mbit / 1000:.4g} Gbit/s"
