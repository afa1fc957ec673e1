"""Comparison of hosts that should be equal: the facts in which a host differs from most of its kind.

Hosts of one kind have the same GPUs and the same boards of RDMA ports. A ``Digest`` counts the values of each
fact. Digests of parts of a cluster can be merged in any order, so that no machine has to hold all hosts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TypeVar

from probes.base import some
from probes.health.model import HostHealth, HostProblem, Severity
from probes.health.rules import gpu_names
from probes.health.settings import NONE, counted

__all__ = ["Digest", "Holders", "KindDigest", "differences", "differences_of", "digest", "facts_of", "merged"]

# Most host names that a digest keeps for one value, and most that a text shows. The bound leaves enough for
# the few hosts that differ, and the many that are alike take little room. The count of hosts is exact in any
# case.
_MOST_NAMES = 64
_MOST_SHOWN = 4
# Fewest hosts that are compared: of two, neither is known to be the one that differs.
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


_Key = TypeVar("_Key", str, tuple[str, str])
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Holders:
    """The hosts with one value of a fact: how many, and the first of their names in order."""

    count: int
    names: tuple[str, ...]


@dataclass(frozen=True)
class KindDigest:
    """Hosts with the same GPUs and boards: all of them, and those with each value of each fact."""

    hosts: Holders
    facts: Mapping[str, Mapping[str, Holders]] = field(default_factory=dict)


@dataclass(frozen=True)
class Digest:
    """The facts of some hosts, counted by kind; a kind is (names of GPUs, boards of RDMA ports)."""

    kinds: Mapping[tuple[str, str], KindDigest] = field(default_factory=dict)


def digest(hosts: Iterable[HostHealth]) -> Digest:
    """Return the digest of some hosts."""
    return reduce(merged, (_digest_of(host) for host in hosts), Digest())


def merged(a: Digest, b: Digest) -> Digest:
    """Return the digest of the hosts of ``a`` and of ``b``, which must have no host in common."""
    return Digest(_joined(a.kinds, b.kinds, _merged_kind))


def differences(hosts: Sequence[HostHealth]) -> list[HostProblem]:
    """Return the facts in which a host differs from most of its kind; kinds of 1 or 2 are skipped.

    If no value has a majority, one problem names the hosts with each value. At most 64 hosts with the same
    value get a problem each; its text gives the number of all of them.
    """
    return differences_of(digest(hosts))


def differences_of(found: Digest) -> list[HostProblem]:
    """Return the differences between the hosts of a digest, as ``differences`` does."""
    problems = [
        problem
        for kind in found.kinds.values()
        for fact, values in kind.facts.items()
        for problem in _of_fact(fact, values)
    ]
    return sorted(
        [*problems, *_of_boards(found)], key=lambda one: (one.severity != "fault", one.part, one.host)
    )


def _of_fact(fact: str, values: Mapping[str, Holders]) -> Iterator[HostProblem]:
    total = sum(holders.count for holders in values.values())
    if total < _LEAST_HOSTS or len(values) < 2:
        return
    ordered = sorted(values.items(), key=lambda pair: (pair[1].count, pair[0]))
    usual, most = ordered[-1]
    if 2 * most.count <= total:
        yield _undecided(fact, ordered, _severity(fact, usual))
        return
    if fact.startswith("mtu "):
        remedy = f"ip link set {fact.removeprefix('mtu ')} mtu {usual}, and check the switch's port"
    else:
        other = f"find out why its {fact} is not that of the other hosts: {{}}"
        remedy = _REMEDIES.get(fact, other).format(usual)
    for value, few in ordered[:-1]:
        beside = f" (as on {few.count} hosts)" if few.count > 1 else ""
        text = f"{fact} is {value}{beside}; it is {usual} on {most.count} of {total} hosts of its kind"
        for host in few.names:
            yield HostProblem(host, fact, "differs", _severity(fact, value), text, remedy)


def _severity(fact: str, value: str) -> Severity:
    return "fault" if fact.startswith(_PARTS) or (fact == _BOARDS and value == NONE) else "remark"


def _undecided(fact: str, ordered: Sequence[tuple[str, Holders]], severity: Severity) -> HostProblem:
    """Return one problem about a fact without a majority, on the first host of the smallest group."""
    camps = "; ".join(
        f"{value} on {holders.count} ({some(holders.names, _MOST_SHOWN)})" for value, holders in ordered
    )
    return HostProblem(
        ordered[0][1].names[0],
        fact,
        "differs",
        severity,
        f"{fact} has no value that most hosts of its kind have: {camps}",
        f"decide which {fact} is right, and give all of these hosts that one",
    )


def _of_boards(found: Digest) -> Iterator[HostProblem]:
    """Yield hosts whose RDMA boards are not those of most hosts with the same GPUs."""
    by_gpus: dict[str, dict[str, Holders]] = {}
    for (gpus, boards), kind in found.kinds.items():
        by_gpus.setdefault(gpus, {})[boards] = kind.hosts
    for gpus, values in by_gpus.items():
        # Boards of hosts without GPUs are not compared, because these hosts serve different purposes: login,
        # storage, management.
        if gpus != NONE:
            yield from _of_fact(_BOARDS, values)


def _digest_of(host: HostHealth) -> Digest:
    one = Holders(1, (host.host,))
    facts = {fact: {value: one} for fact, value in facts_of(host).items()}
    gpus = ", ".join(sorted(set(gpu_names(host)))) or NONE
    boards = (
        ", ".join(sorted({nic.board for nic in host.nics if nic.rdma_device and not nic.virtual})) or NONE
    )
    return Digest({(gpus, boards): KindDigest(one, facts)})


def facts_of(host: HostHealth) -> dict[str, str]:
    """Return all facts of a host, also of its GPUs, that should be equal within its kind."""
    facts = dict(host.alike)
    if not host.gpus:
        # This shows as a difference if the driver answers on other hosts of the kind, but not on this one.
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


def _merged_kind(a: KindDigest, b: KindDigest) -> KindDigest:
    return KindDigest(
        _merged_holders(a.hosts, b.hosts),
        _joined(a.facts, b.facts, lambda x, y: _joined(x, y, _merged_holders)),
    )


def _merged_holders(a: Holders, b: Holders) -> Holders:
    return Holders(a.count + b.count, tuple(sorted((*a.names, *b.names))[:_MOST_NAMES]))


def _joined(
    a: Mapping[_Key, _Value], b: Mapping[_Key, _Value], both: Callable[[_Value, _Value], _Value]
) -> dict[_Key, _Value]:
    """Return the union of two maps, sorted by key; ``both`` combines the values of a common key."""
    found = {**a, **b}
    found |= {key: both(a[key], b[key]) for key in a if key in b}
    return dict(sorted(found.items()))
