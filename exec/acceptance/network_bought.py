"""Networks made from the measured one: as it should be, with a fault repaired, without some hosts.

The normal cost of a link depends on its class: within a host, between hosts of a rack, or between racks. If
the bought rates are known, they determine the normal cost. Otherwise it is the usual cost of the profile's
links of the class.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from probes.base import Floats, Indices, UsageError, floats, ints, quoted, some
from probes.link_costs import TRUNK, Profile
from probes.localization import Bought, FabricPlan, Fault
from probes.sharing import is_of, nic_name
from synth.network import Network, grouped
from synth.networks import from_profile, restricted

__all__ = [
    "LinkClass",
    "LinkCosts",
    "link_classes",
    "repaired",
    "sound_network",
    "usual_costs",
    "without_hosts",
]

LinkClass = Literal["inside", "rack", "across"]
# The share of a class's links that are cheaper than its usual cost. With a fifth, the usual cost is still a
# sound link's cost if almost four of five links are slow. A few links that were measured too fast do not
# change it.
_FASTEST = 0.2


@dataclass(frozen=True)
class LinkCosts:
    """The cost of a link: alpha (s), and beta (s/byte) of payload."""

    alpha_s: float
    beta_s_per_byte: float


def link_classes(hosts: Sequence[str], src: Indices, dst: Indices, plan: FabricPlan) -> list[LinkClass]:
    """Return the class of each link; without a plan all hosts count as one rack."""
    rack_of = {host: plan.rack_of(host) for host in dict.fromkeys(hosts)}
    found: list[LinkClass] = []
    for one, other in zip(src.tolist(), dst.tolist(), strict=True):
        ends = hosts[one], hosts[other]
        source_rack, target_rack = rack_of[ends[0]], rack_of[ends[1]]
        found.append("inside" if ends[0] == ends[1] else "rack" if source_rack == target_rack else "across")
    return found


def usual_costs(profile: Profile, plan: FabricPlan) -> Callable[[LinkClass], LinkCosts]:
    """Return a function that gives the usual cost of a class, that is, its links' quantile ``_FASTEST``.

    A class without links has the cost of the next slower class that has some, or else of the next faster.
    """
    links = profile.links
    classes = np.array(link_classes([rank.host for rank in profile.ranks], links.src, links.dst, plan))
    order = get_args(LinkClass)
    own = {
        name: LinkCosts(
            float(np.quantile(links.alpha_s[classes == name], _FASTEST)),
            float(np.quantile(links.beta_s_per_byte[classes == name], _FASTEST)),
        )
        for name in order
        if (classes == name).any()
    }

    def usual(name: LinkClass) -> LinkCosts:
        place = order.index(name)
        return next(own[other] for other in (*order[place:], *reversed(order[:place])) if other in own)

    return usual


def sound_network(
    profile: Profile,
    bought: Bought | None = None,
    plan: FabricPlan | None = None,
) -> Network:
    """Return the network of ``profile`` as it should be: every link at its normal cost.

    Between hosts, links get the bought rate and latency as far as known, otherwise the usual costs
    (`usual_costs`). Within a host, the bought rate is used only if the profile was measured on GPUs, because
    processes on CPUs communicate through memory. If the rate of a NIC is known, the ranks of a host share its
    NICs: a rank with a declared NIC uses it, and the others are spread over the NICs in the order of their
    numbers. The plan's trunks replace the measured trunks if the plan gives their rate. Otherwise every
    measured trunk gets the rate of the fastest.
    """
    plan = plan or FabricPlan()
    usual = usual_costs(profile, plan)
    network = from_profile(profile, "as it should be")
    classes = link_classes(network.hosts, network.src, network.dst, plan)
    trunk_beta = _trunk_s_per_byte(bought, plan)
    costs = {
        name: _normal(name, usual(name), bought, trunk_beta, on_gpus=profile.transport == "cuda")
        for name in dict.fromkeys(classes)
    }
    ports = _Ports(network)
    if trunk_beta:
        ports.drop(lambda name: name.startswith(TRUNK))
        ports.add_trunks(network, plan, trunk_beta)
    else:
        ports.level_trunks()
    if bought is not None and bought.nic_bytes_per_s is not None:
        ports.drop(lambda name: any(is_of(name, host, way) for host in set(network.hosts) for way in _WAYS))
        ports.add_nics(network, [rank.nic for rank in profile.ranks], bought.nics)
    return replace(
        ports.on(network),
        # Several links can use a trunk at once only on a network that queues.
        queues=network.queues or trunk_beta > 0,
        alpha_s=floats([costs[name].alpha_s for name in classes]),
        beta_s_per_byte=floats([costs[name].beta_s_per_byte for name in classes]),
        measured=False,
    )


def repaired(network: Network, sound: Network, fault: Fault, others: Iterable[Fault] = ()) -> Network:
    """Return the measured network as it would be without ``fault``.

    The links of ``fault.rows`` get the costs that they have in ``sound``, a network with the same links; they
    never become slower. A link that ``others`` also explain keeps their effects: the worst of their levels,
    and all of their extra latencies. If the fault explains most links of a port, the port is restored too:
    its rate is divided by the fault's level.
    """
    rows = np.array(fault.rows, dtype=np.int64)
    if rows.size and not 0 <= rows.min() <= rows.max() < network.links:
        raise UsageError(f"a fault names link {int(rows.max())}, the network has {network.links} links")
    alpha_s, beta = network.alpha_s.copy(), network.beta_s_per_byte.copy()
    normal_alpha, normal_beta = sound.alpha_s.copy(), sound.beta_s_per_byte.copy()
    for other in others:
        other_rows = np.array(other.rows, dtype=np.int64)
        normal_beta[other_rows] = np.maximum(
            normal_beta[other_rows], sound.beta_s_per_byte[other_rows] / max(other.level, _LEAST)
        )
        normal_alpha[other_rows] += other.extra_s
    alpha_s[rows] = np.minimum(alpha_s[rows], normal_alpha[rows])
    beta[rows] = np.minimum(beta[rows], normal_beta[rows])
    mended = replace(network, alpha_s=floats(alpha_s), beta_s_per_byte=floats(beta))
    own_beta = _restored(network, mended, rows, fault.level)
    # Several links can use a faster port at once only on a network that queues.
    return replace(mended, port_beta_s_per_byte=own_beta, queues=network.queues or len(own_beta) > 0)


def without_hosts(network: Network, hosts: Collection[str]) -> Network:
    """Return the network without the ranks of ``hosts``; the others are renumbered in order.

    Raises UsageError for a host that is not there, and if fewer than two ranks are left.
    """
    unknown = sorted(set(hosts) - set(network.hosts))
    if unknown:
        raise UsageError(f"{network.name} has no host {quoted(some(unknown, 4))}")
    kept = [rank for rank, host in enumerate(network.hosts) if host not in hosts]
    if len(kept) < 2:
        raise UsageError(f"without {some(sorted(hosts), 4)} fewer than two ranks are left")
    return restricted(network, kept)[0]


_WAYS = ("egress", "ingress")
# Costs are divided by a fault's level, but at least by this: a link that carries nothing has level 0.
_LEAST = 1e-6
# The repair of a fault restores a port if the fault explains more than this share of the port's links. A
# fault of a NIC does not explain all of them: some were not measured, and others have another fault.
_MOST_OF_A_PORT = 0.5
# A restored port has a rate of its own only if it is faster than its fastest link by more than this factor.
# Smaller differences count as errors of measurement (`synth.network.Network.port_s_per_byte`).
_ALIKE = 1.1


def _normal(
    name: LinkClass, usual: LinkCosts, bought: Bought | None, trunk_beta: float, *, on_gpus: bool
) -> LinkCosts:
    if bought is None:
        return LinkCosts(usual.alpha_s, max(usual.beta_s_per_byte, trunk_beta * (name == "across")))
    if name == "inside":
        rate = bought.inside_bytes_per_s if on_gpus else None
        return LinkCosts(usual.alpha_s, 1 / rate if rate else usual.beta_s_per_byte)
    alpha_s = usual.alpha_s if bought.latency_s is None else bought.latency_s
    rate = bought.nic_bytes_per_s
    beta = 1 / (rate * bought.goodput) if rate else usual.beta_s_per_byte
    return LinkCosts(alpha_s, max(beta, trunk_beta * (name == "across")))


def _trunk_s_per_byte(bought: Bought | None, plan: FabricPlan) -> float:
    """Return the time per byte of payload over a planned trunk, 0 if its rate is unknown."""
    if plan.trunk_bytes_per_s is None or len(plan.racks) < 2:
        return 0.0
    goodput = bought.goodput if bought is not None else Bought("").goodput
    return 1 / (plan.trunk_bytes_per_s * goodput)


class _Ports:
    """The ports of a network in the making: the links of each, and its own time per byte."""

    def __init__(self, network: Network) -> None:
        start, users = network.port_links
        own_beta = network.port_beta_s_per_byte
        self._users = {name: users[start[at] : start[at + 1]] for at, name in enumerate(network.ports)}
        self._own = {
            name: float(own_beta[at]) if len(own_beta) else 0.0 for at, name in enumerate(network.ports)
        }
        self._beta = network.beta_s_per_byte

    def drop(self, unwanted: Callable[[str], bool]) -> None:
        for name in [name for name in self._users if unwanted(name)]:
            del self._users[name], self._own[name]

    def level_trunks(self) -> None:
        """Give every trunk the rate of the fastest trunk, which has its own rate or its fastest link's."""
        rates = {
            name: self._own[name] or float(self._beta[users].min())
            for name, users in self._users.items()
            if name.startswith(TRUNK) and len(users)
        }
        if rates:
            self._own.update(dict.fromkeys(rates, min(rates.values())))

    def add_trunks(self, network: Network, plan: FabricPlan, beta: float) -> None:
        """Add the uplink of every rack, each way, for its links to other racks."""
        racks = np.array([plan.rack_of(host) for host in network.hosts])
        source_rack, target_rack = racks[network.src], racks[network.dst]
        for rack in dict.fromkeys(racks.tolist()):
            for word, mine, other in (("up", source_rack, target_rack), ("down", target_rack, source_rack)):
                rows = np.flatnonzero((mine == rack) & (other != rack))
                self._add(f"{TRUNK}{rack} {word}", rows, beta)

    def add_nics(self, network: Network, declared: Sequence[str], nics: int) -> None:
        """Add the NICs of every host, each way, for its links to other hosts."""
        names = _nic_names(network.hosts, declared, nics)
        known = list(dict.fromkeys(names))
        nic = np.array([known.index(name) for name in names])
        between = np.flatnonzero(~network.within_host)
        for way, end in zip(_WAYS, (network.src, network.dst), strict=True):
            start, order = grouped(nic[end[between]], len(known))
            for at, name in enumerate(known):
                self._add(f"{name} {way}", between[order[start[at] : start[at + 1]]], 0.0)

    def on(self, network: Network) -> Network:
        """Return the network with these ports."""
        names = [name for name, users in self._users.items() if len(users)]
        number = np.repeat(np.arange(len(names)), [len(self._users[name]) for name in names])
        users = np.concatenate([self._users[name] for name in names] or [np.zeros(0, np.int64)])
        order = np.argsort(users, kind="stable")
        counts = np.bincount(users, minlength=network.links)
        own_beta = [self._own[name] for name in names]
        return replace(
            network,
            ports=tuple(names),
            link_port_start=ints(np.concatenate([[0], np.cumsum(counts)])),
            link_port=ints(number[order]),
            port_beta_s_per_byte=floats(own_beta if any(own_beta) else []),
        )

    def _add(self, name: str, rows: Indices, own_beta: float) -> None:
        if len(rows):
            self._users[name], self._own[name] = ints(rows), own_beta


def _nic_names(hosts: Sequence[str], declared: Sequence[str], nics: int) -> list[str]:
    """Return the NIC of each rank: as declared, otherwise consecutive ranks of a host share one."""
    crowd, place = Counter(hosts), Counter[str]()
    found = []
    for host, nic in zip(hosts, declared, strict=True):
        usual = place[host] * min(nics, crowd[host]) // crowd[host]
        place[host] += 1
        found.append(nic_name(host, "", nic or usual).strip())
    return found


def _restored(network: Network, mended: Network, rows: Indices, level: float) -> Floats:
    """Return each port's own time per byte after a repair; 0 means the time of its fastest links."""
    before, own_beta = network.port_s_per_byte, network.port_beta_s_per_byte
    found = own_beta.copy() if len(own_beta) else np.zeros(len(network.ports))
    explained = np.zeros(network.links, dtype=bool)
    explained[rows] = True
    start, users = network.port_links
    for port, first in enumerate(start[:-1]):
        port_links = users[first : start[port + 1]]
        if len(port_links) and explained[port_links].mean() > _MOST_OF_A_PORT:
            restored = before[port] * min(level, 1.0)
            found[port] = restored if restored * _ALIKE < mended.beta_s_per_byte[port_links].min() else 0.0
    return floats(found if found.any() else [])
