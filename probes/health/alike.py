"""Comparison of hosts that should be equal: the facts in which a host differs from most of its kind.

Hosts of one kind have the same GPUs and the same boards of RDMA ports.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from probes.base import some
from probes.health.model import HostHealth, HostProblem, Severity
from probes.health.rules import gpu_names
from probes.health.settings import NONE, counted

__all__ = ["differences", "facts_of"]

# The most hosts with the same value that get a problem each, and the most that a text names.
_MOST_NAMED = 64
_MOST_SHOWN = 4
# Fewest hosts that are compared: if two hosts differ, either may be the odd one.
_LEAST_HOSTS = 3
# Beginnings of the names of facts that describe parts. A difference in them is a fault; a difference in other
# facts (settings and versions) is a remark. The MTU is among them, because a host with a larger MTU sends
# packets that do not arrive.
_PARTS = (
    *("gpus", "memory", "cpus", "gpu nvlinks"),
    *("rdma ports", "rdma state ", "rdma speed ", "rdma pcie ", "mtu "),
)
_BOARDS = "rdma boards"
_REMEDIES = {
    "kernel": "install the kernel {} and restart the host",
    "driver": "install the driver {} and restart the host",
    "bios": "update the BIOS to {}",
    "microcode": "update BIOS or microcode package to {}",
    "governor": "cpupower frequency-set -g {}",
    "numa_balancing": "sysctl -w kernel.numa_balancing={}",
    "zone_reclaim": "sysctl -w vm.zone_reclaim_mode={}",
    "rmem_max": "sysctl -w net.core.rmem_max={}",
    "wmem_max": "sysctl -w net.core.wmem_max={}",
    "tcp_rmem": "sysctl -w net.ipv4.tcp_rmem='{}'",
    "tcp_wmem": "sysctl -w net.ipv4.tcp_wmem='{}'",
    "tcp_congestion_control": "sysctl -w net.ipv4.tcp_congestion_control={}",
    "default_qdisc": "sysctl -w net.core.default_qdisc={}",
    "netdev_max_backlog": "sysctl -w net.core.netdev_max_backlog={}",
    "transparent_hugepages": "echo {} > /sys/kernel/mm/transparent_hugepage/enabled",
    "kernel options": "set the kernel's command line to {} and restart the host",
}


# The names of the hosts with each value of a fact.
_Holders = Mapping[str, Sequence[str]]


def differences(hosts: Sequence[HostHealth]) -> list[HostProblem]:
    """Return the facts in which a host differs from most of its kind; kinds of 1 or 2 are skipped.

    If no value has a majority, one problem names the hosts with each value. At most 64 hosts with the same
    value get a problem each; its text gives the number of all of them.
    """
    kinds: dict[tuple[str, str], list[HostHealth]] = {}
    for host in hosts:
        kinds.setdefault(_kind(host), []).append(host)
    problems = [
        problem
        for of_kind in kinds.values()
        for fact, holders in _facts(of_kind).items()
        for problem in _of_fact(fact, holders)
    ]
    return sorted(
        [*problems, *_of_boards(kinds)], key=lambda one: (one.severity != "fault", one.part, one.host)
    )


def _kind(host: HostHealth) -> tuple[str, str]:
    """Return (names of the GPUs, boards of the RDMA ports)."""
    boards = {nic.board for nic in host.nics if nic.rdma_device and not nic.virtual}
    return ", ".join(sorted(set(gpu_names(host)))) or NONE, ", ".join(sorted(boards)) or NONE


def _facts(hosts: Iterable[HostHealth]) -> dict[str, dict[str, list[str]]]:
    """Return the hosts with each value of each fact."""
    found: dict[str, dict[str, list[str]]] = {}
    for host in hosts:
        for fact, value in facts_of(host).items():
            found.setdefault(fact, {}).setdefault(value, []).append(host.host)
    return found


def _of_fact(fact: str, holders: _Holders) -> Iterator[HostProblem]:
    total = sum(map(len, holders.values()))
    if total < _LEAST_HOSTS or len(holders) < 2:
        return
    ordered = sorted(
        ((value, sorted(names)) for value, names in holders.items()), key=lambda pair: (len(pair[1]), pair[0])
    )
    usual, most = ordered[-1]
    if 2 * len(most) <= total:
        yield _undecided(fact, ordered, _severity(fact, usual))
        return
    if fact.startswith("mtu "):
        remedy = f"ip link set {fact.removeprefix('mtu ')} mtu {usual}, and check the switch's port"
    else:
        other = f"find out why its {fact} is not that of the other hosts: {{}}"
        remedy = _REMEDIES.get(fact, other).format(usual)
    for value, few in ordered[:-1]:
        beside = f" (as on {len(few)} hosts)" if len(few) > 1 else ""
        text = f"{fact} is {value}{beside}; it is {usual} on {len(most)} of {total} hosts of its kind"
        for host in few[:_MOST_NAMED]:
            yield HostProblem(host, fact, "differs", _severity(fact, value), text, remedy)


def _severity(fact: str, value: str) -> Severity:
    return "fault" if fact.startswith(_PARTS) or (fact == _BOARDS and value == NONE) else "remark"


def _undecided(fact: str, ordered: Sequence[tuple[str, list[str]]], severity: Severity) -> HostProblem:
    """Return one problem about a fact without a majority, on the first host of the smallest group."""
    camps = "; ".join(f"{value} on {len(names)} ({some(names, _MOST_SHOWN)})" for value, names in ordered)
    return HostProblem(
        ordered[0][1][0],
        fact,
        "differs",
        severity,
        f"{fact} has no value that most hosts of its kind have: {camps}",
        f"decide which {fact} is right, and give all of these hosts that one",
    )


def _of_boards(kinds: Mapping[tuple[str, str], Iterable[HostHealth]]) -> Iterator[HostProblem]:
    """Yield hosts with other RDMA boards than most hosts with the same GPUs."""
    by_gpus: dict[str, dict[str, list[str]]] = {}
    for (gpus, boards), hosts in kinds.items():
        by_gpus.setdefault(gpus, {})[boards] = [host.host for host in hosts]
    for gpus, holders in by_gpus.items():
        # Boards of hosts without GPUs are not compared, because these hosts serve different purposes: login,
        # storage, management.
        if gpus != NONE:
            yield from _of_fact(_BOARDS, holders)


def facts_of(host: HostHealth) -> dict[str, str]:
    """Return all facts of a host, also of its GPUs, that should be equal within its kind."""
    facts = dict(host.alike)
    if not host.gpus:
        # NONE is a difference if the driver answers on other hosts of the kind, but not on this one.
        return facts | {"gpus": NONE}
    found = {
        "gpus": [gpu.name for gpu in host.gpus],
        "gpu vbios": [gpu.vbios for gpu in host.gpus],
        "gpu ecc": [_switch(gpu.ecc_enabled) for gpu in host.gpus],
        "gpu mig": [_switch(gpu.mig) for gpu in host.gpus],
        "gpu persistence": [_switch(gpu.persistence) for gpu in host.gpus],
        "gpu compute mode": [gpu.compute_mode for gpu in host.gpus],
        "gpu power limit": [
            "" if gpu.power_limit_w is None else f"{gpu.power_limit_w:g} W" for gpu in host.gpus
        ],
        "gpu application clock": [
            "" if gpu.application_clock_mhz is None else f"{gpu.application_clock_mhz} MHz"
            for gpu in host.gpus
        ],
        "gpu nvlinks": ["" if gpu.nvlinks is None else str(gpu.nvlinks) for gpu in host.gpus],
    }
    return facts | {fact: counted(values) for fact, values in found.items() if all(values)}


def _switch(on: bool | None) -> str:
    return "" if on is None else ("on" if on else "off")
