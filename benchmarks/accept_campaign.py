"""Inject faults into random networks and count those that `locate` names correctly; prints a table.

Each case draws a network of 6 to 64 hosts with 1, 2 or 4 NICs each, in one to four racks, over-subscribed or
not, with links of 0.1 to 50 GB/s and 2 to 100 us. One kind of fault is then injected. The benchmark simulates
a profile of the network: each link is measured alone, in 5 passes of 6 trains, and some trains are disturbed.
The rate of a link has a noise of 1 to 3 %. A case is right if `locate` names the kind and the part, and
nothing else. A clean network in which anything is named is a false alarm.

Two rival methods judge the same networks. To be right, they need to name only the part, not the kind.
Thresholds: a link is slow below 80 % of the median rate. A host is named if over half of the links from it,
or over half of those to it, are slow. Two hosts that are not named are named as a pair if a link between them
is slow. Bisection: groups of hosts run a ring collective, which is as fast as its slowest link. A group below
80 % of the normal rate is halved until it has two or three hosts. Each of them is then paired with good
hosts.

The simulation uses the same model as the localization, so expect fewer right answers on a real cluster.

    python benchmarks/accept_campaign.py --cases 1000 --clean 300 --seed 1
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from probes.base.columns import Floats, Mask, floats, ints
from probes.link_costs import HostMemory, Links, Profile, ProfiledRank, SentSegments, SharedPort
from probes.localization import Bought, FabricPlan, Fault, locate

PASSES, TRAINS = 5, 6
# The probability that a train is disturbed, the probability that all trains of a pass over a link are, and
# the mean relative delay of a disturbance.
DISTURBED, DISTURBED_PASS, DISTURBANCE = 0.05, 0.02, 0.3
# The standard deviation of the logarithm of the rates of equal hosts.
HOSTS_DIFFER = 0.004
GOODPUT, THRESHOLD = 0.92, 0.8
# The most bytes that a TCP connection has in flight in a short measurement.
IN_FLIGHT_BYTES = 4 << 20
SEGMENTS = 1_000_000
SIZES_BYTES = (1 << 15, 1 << 20, 1 << 24)

Named = tuple[str, frozenset[str]]


@dataclass(eq=False)
class Network:
    """The hosts, links, trunks and faults of a cluster; matrices have a row and column per rank."""

    hosts: list[str]
    nics: int
    rack: list[int]
    rate: Floats
    alpha_s: Floats
    normal_rate: float
    normal_alpha_s: float
    noise: float
    alpha_noise: float
    trunk_rate: Floats | None
    cpu: Floats
    loss: Floats
    unsteady: Floats
    slow_share: Floats
    rng: np.random.Generator
    injected: list[Named] = field(default_factory=list)
    needs_plan: bool = False
    needs_offer: bool = False
    planned_rack: list[int] = field(default_factory=list)
    planned_trunk: float | None = None

    @property
    def host_of(self) -> np.ndarray:
        return np.repeat(np.arange(len(self.hosts)), self.nics)

    def cells(self, sources: Iterable[int], targets: Iterable[int]) -> Mask:
        """Return the mask of the links from hosts to hosts."""
        src, dst = np.isin(self.host_of, list(sources)), np.isin(self.host_of, list(targets))
        mask: Mask = src[:, None] & dst[None, :] & (self.host_of[:, None] != self.host_of[None, :])
        return mask

    def of(self, host: int, way: str) -> Mask:
        every = range(len(self.hosts))
        sends, receives = self.cells([host], every), self.cells(every, [host])
        return {"egress": sends, "ingress": receives, "host": sends | receives}[way]

    def hold(self, where: Mask, most: float) -> None:
        """Cap the rates of the links ``where`` at the share ``most`` of the normal rate."""
        self.rate[where] = np.minimum(self.rate[where], most * self.normal_rate)

    def racks(self) -> list[list[str]]:
        """Return the hosts of each rack, as planned."""
        found = self.planned_rack or self.rack
        return [
            [host for host, of in zip(self.hosts, found, strict=True) if of == rack]
            for rack in range(max(found) + 1)
        ]

    def plan(self) -> FabricPlan:
        racks = {f"rack{at}": tuple(hosts) for at, hosts in enumerate(self.racks())}
        return FabricPlan(racks, trunk_bytes_per_s=self.planned_trunk)

    def offer(self) -> Bought:
        return Bought("drawn", self.normal_rate / GOODPUT, self.nics, GOODPUT)


def drawn(rng: np.random.Generator, *, racks: int = 0, nics: int = 0, far: bool = False) -> Network:
    """Return a random sound network with at least ``racks`` racks and ``nics`` NICs per host.

    With ``far``, links between racks always have a higher latency than links within a rack.
    """
    count = int(np.exp(rng.uniform(np.log(6), np.log(64.99))))
    wanted = max(racks, int(rng.choice([1, 1, 2, 3, 4])))
    wanted = min(wanted, max(racks, count // 2))
    rack = sorted([*range(wanted), *range(wanted), *rng.integers(wanted, size=count - 2 * wanted).tolist()])
    per_host = max(nics, int(rng.choice([1, 1, 2, 4])))
    width = len(str(count))
    hosts = [f"gpu{at + 1:0{width}d}" for at in range(count)]
    ranks = count * per_host
    rate = float(np.exp(rng.uniform(np.log(0.1e9), np.log(50e9))))
    alpha_s = float(np.exp(rng.uniform(np.log(2e-6), np.log(100e-6))))
    rng_host = np.exp(rng.normal(0, HOSTS_DIFFER, count))
    host_of = np.repeat(np.arange(count), per_host)
    differs = np.minimum(rng_host[host_of][:, None], rng_host[host_of][None, :])
    alphas = np.full((ranks, ranks), alpha_s)
    slot = np.tile(np.arange(per_host), count)
    if per_host > 1 and rng.random() < 0.5:
        alphas[slot[:, None] != slot[None, :]] *= rng.uniform(1.1, 1.5)
    here = np.array(rack)[host_of]
    if far or rng.random() < 0.5:
        alphas[here[:, None] != here[None, :]] += alpha_s * rng.uniform(0.2, 1.0)
    trunk = None
    if wanted > 1 and rng.random() < 0.5:
        # Every leaf switch has as many uplinks as any other.
        hosts_of_rack = count * per_host / wanted
        trunk = np.full(wanted, rate * max(1.5, hosts_of_rack / rng.choice([2.0, 3.0, 4.0])))
    zeros = np.zeros((ranks, ranks))
    return Network(
        hosts=hosts,
        nics=per_host,
        rack=rack,
        rate=rate * differs,
        alpha_s=alphas,
        normal_rate=rate,
        normal_alpha_s=alpha_s,
        noise=rng.uniform(0.01, 0.03),
        alpha_noise=rng.uniform(0.01, 0.04),
        trunk_rate=trunk,
        cpu=np.ones(count),
        loss=zeros.copy(),
        unsteady=np.ones((ranks, ranks)),
        slow_share=zeros.copy(),
        rng=rng,
    )


def measured(net: Network) -> Profile:
    """Return the simulated profile of a measurement of each link alone."""
    rng, ranks = net.rng, len(net.hosts) * net.nics
    src, dst = np.nonzero(~np.eye(ranks, dtype=bool))
    host = net.host_of
    between = host[src] != host[dst]
    rate = np.where(between, net.rate[src, dst], 4 * net.normal_rate / net.cpu[host[src]])
    alpha = np.where(between, net.alpha_s[src, dst], 0.3 * net.normal_alpha_s * net.cpu[host[src]])
    links = len(src)
    own = np.exp(rng.normal(0, net.noise, links))
    shape = (links, PASSES, TRAINS)
    late = np.exp(np.abs(rng.normal(0, 0.02, shape)))
    late *= 1 + rng.exponential(DISTURBANCE, shape) * (rng.random(shape) < DISTURBED)
    passes = (links, PASSES, 1)
    late *= 1 + rng.exponential(DISTURBANCE, passes) * (rng.random(passes) < DISTURBED_PASS)
    unsteady = np.where(between, net.unsteady[src, dst], 1.0)
    share = np.where(between, net.slow_share[src, dst], 0.0)
    late *= np.where(rng.random(shape) < share[:, None, None], unsteady[:, None, None], 1.0)
    loss = np.where(between, net.loss[src, dst], 0.0)
    # Each train with losses waits for retransmissions of its own.
    late *= 1 + (loss > 0)[:, None, None] * rng.exponential(1.0, shape)
    late = late.reshape(links, -1) / (rate * own)[:, None]
    best, middle, p90 = late.min(axis=1), np.median(late, axis=1), np.quantile(late, 0.9, axis=1)
    width = 1.96 * net.noise * rng.uniform(0.3, 1.0, links)
    trip = np.empty((ranks, ranks))
    trip[src, dst] = alpha * np.exp(rng.normal(0, net.alpha_noise, links))
    trip = np.minimum(trip, trip.T)
    alpha = trip[src, dst]
    columns = Links(
        ints(src), ints(dst), floats(alpha), floats(alpha * 1.05), floats(alpha * 1.3), floats(best),
        floats(middle), floats(p90), floats(best * np.exp(-width)), floats(best * np.exp(width)),
        floats(np.abs(rng.normal(0, 0.02, links))), ints(np.full(links, PASSES * TRAINS)), ("",) * links,
    )  # fmt: skip
    return Profile(
        tuple(
            ProfiledRank(at, net.hosts[host[at]], "process", f"mlx5_{at % net.nics}" if net.nics > 1 else "")
            for at in range(ranks)
        ),
        columns,
        tuple(trunk_ports(net, host[src], host[dst])),
        "mpi",
        "simulated",
        1.0,
        PASSES,
        memory=memory(net),
        segments=tuple(segments(net)),
    )


def trunk_ports(net: Network, src: np.ndarray, dst: np.ndarray) -> Iterable[SharedPort]:
    """Yield both directions of each trunk with at most 90 % of the rate of its rack's NICs."""
    if net.trunk_rate is None:
        return
    rack = np.array(net.rack)
    for number, rate in enumerate(net.trunk_rate):
        if rate > 0.9 * net.normal_rate * net.nics * int((rack == number).sum()):
            continue
        near = [host for host, of in zip(net.hosts, net.rack, strict=True) if of == number]
        far = [host for host in net.hosts if host not in near]
        sides = [",".join(near), ",".join(far)]
        for names, (one, other) in ((sides, (src, dst)), (sides[::-1], (dst, src))):
            rows = np.flatnonzero((rack[one] == number) & (rack[other] != number))
            carried = rate * float(np.exp(net.rng.normal(0, 0.03)))
            yield SharedPort(f"trunk {' → '.join(names)}", tuple(rows.tolist()), "measured", 1 / carried)


def memory(net: Network) -> tuple[HostMemory, ...]:
    """Return the costs of copies and sums on hosts with several ranks."""
    if net.nics < 2:
        return ()
    base = np.array([1e-10, 1.5e-10, 2e-10])
    found = []
    for host, slower in zip(net.hosts, net.cpu, strict=True):
        costs = [tuple((base * slower * np.exp(net.rng.normal(0, 0.03, 3))).tolist()) for _ in range(2)]
        found.append(HostMemory(host, SIZES_BYTES, costs[0], costs[1], cores=net.nics))
    return tuple(found)


def segments(net: Network) -> Iterable[SentSegments]:
    """Yield the segments that each host retransmits: those lost on its links, and a few late."""
    for at, host in enumerate(net.hosts):
        mine = net.loss[net.host_of == at][:, net.host_of != at]
        share = 1e-5 + float(mine.mean())
        yield SentSegments(host, SEGMENTS, int(net.rng.binomial(SEGMENTS, share)))


def two_hosts(net: Network) -> tuple[int, int]:
    """Return two different hosts that no fault has yet."""
    taken = {host for _, parts in net.injected for host in parts}
    free = [at for at, host in enumerate(net.hosts) if host not in taken]
    a, b = net.rng.choice(free, 2, replace=False)
    return int(a), int(b)


def named(net: Network, kind: str, *hosts: int) -> None:
    """Record the kind and the hosts of an injected fault, which a right answer names."""
    net.injected.append((kind, frozenset(net.hosts[host] for host in hosts)))


def slow_end(way: str) -> Callable[[Network], None]:
    """Return a function that makes one host slow to send, to receive, or both."""

    def inject(net: Network) -> None:
        host, _ = two_hosts(net)
        net.hold(net.of(host, way), net.rng.uniform(0.2, 0.85))
        named(net, way, host)

    return inject


def slow_pair(net: Network) -> None:
    """Slow two hosts down on the way to each other."""
    a, b = two_hosts(net)
    net.hold(net.cells([a], [b]) | net.cells([b], [a]), net.rng.uniform(0.2, 0.8))
    named(net, "pair", a, b)


def slow_way(net: Network) -> None:
    """Slow one host down on the way to another."""
    a, b = two_hosts(net)
    net.hold(net.cells([a], [b]), net.rng.uniform(0.2, 0.75))
    named(net, "one_way_pair", a, b)


def slow_trunk(net: Network) -> None:
    """Let the uplinks of a rack carry less than one NIC."""
    rack = int(net.rng.integers(max(net.rack) + 1))
    inside = [at for at, of in enumerate(net.rack) if of == rack]
    outside = [at for at, of in enumerate(net.rack) if of != rack]
    level = net.rng.uniform(0.2, 0.8)
    net.hold(net.cells(inside, outside) | net.cells(outside, inside), level)
    if net.trunk_rate is not None:
        net.trunk_rate[rack] = level * net.normal_rate
    net.injected.append(("trunk", frozenset(net.hosts[at] for at in inside)))


def thin_trunk(net: Network) -> None:
    """Let one rack's uplinks carry single flows at full rate, but less in all than others."""
    sizes = np.bincount(net.rack) * net.nics
    rack = int(sizes.argmax())
    usual = max(2.0, 0.6 * float(np.median(sizes)))
    net.trunk_rate = np.full(len(sizes), usual * net.normal_rate)
    net.trunk_rate[rack] *= max(1.0 / usual, net.rng.uniform(0.3, 0.65))
    hosts = [host for host, of in zip(net.hosts, net.rack, strict=True) if of == rack]
    net.injected.append(("trunk", frozenset(hosts)))
    # Without a plan, trunks are compared with each other. With fewer than three measured trunks, the fault
    # shows only against the plan.
    if int((0.9 * sizes > usual).sum()) < 3:
        net.needs_plan, net.planned_trunk = True, usual * net.normal_rate


def loss(net: Network) -> None:
    """Lose packets from a host, to a host, or from one host to another."""
    a, b = two_hosts(net)
    which = net.rng.integers(3)
    where = (net.of(a, "egress"), net.of(a, "ingress"), net.cells([a], [b]))[which]
    # Scale the losses of a single bad link up, so that they show among all packets that the host sends.
    lost = net.rng.uniform(0.01, 0.05) * (len(net.hosts) / 4 if which == 2 else 1)
    net.loss[where] = min(lost, 0.3)
    net.hold(where, net.rng.uniform(0.2, 0.8))
    named(net, "loss", *((a, b) if which == 2 else (a,)))


def latency(extra: Callable[[Network], float]) -> Callable[[Network], None]:
    """Return a function that adds latency to the links of a host or of a pair of hosts."""

    def inject(net: Network) -> None:
        a, b = two_hosts(net)
        whole = net.rng.random() < 0.6
        where = net.of(a, "host") if whole else net.cells([a], [b]) | net.cells([b], [a])
        extra_s = extra(net)
        net.alpha_s[where] += extra_s
        most = IN_FLIGHT_BYTES / (2 * net.alpha_s[where])
        net.rate[where] = np.minimum(net.rate[where], most)
        named(net, "latency", *((a,) if whole else (a, b)))

    return inject


def flapping(net: Network) -> None:
    """Slow a host or a pair down in 40 to 80 % of its trains."""
    a, b = two_hosts(net)
    whole = net.rng.random() < 0.6
    where = net.of(a, "host") if whole else net.cells([a], [b]) | net.cells([b], [a])
    net.unsteady[where] = net.rng.uniform(2, 10)
    net.slow_share[where] = net.rng.uniform(0.4, 0.8)
    named(net, "flapping", *((a,) if whole else (a, b)))


def slow_cpu(net: Network) -> None:
    """Slow the processor of a host: its latencies rise, and in half of the cases its rates fall."""
    a, _ = two_hosts(net)
    net.cpu[a] = net.rng.uniform(1.5, 4.0)
    net.alpha_s[net.of(a, "host")] *= 0.5 + 0.5 * net.cpu[a]
    if net.rng.random() < 0.5:
        net.hold(net.of(a, "host"), 1 / net.cpu[a])
    named(net, "cpu", a)


def small_mtu(net: Network) -> None:
    """Cap a host at 72 to 92 % of the normal rate, as smaller packets with more headers would."""
    a, _ = two_hosts(net)
    net.hold(net.of(a, "host"), net.rng.uniform(0.72, 0.92))
    named(net, "host", a)


def miswired(net: Network) -> None:
    """Put a host into another rack than planned."""
    a, _ = two_hosts(net)
    net.planned_rack = [*net.rack]
    others = [rack for rack in range(max(net.rack) + 1) if rack != net.rack[a]]
    net.planned_rack[a] = int(net.rng.choice(others))
    net.needs_plan = True
    named(net, "miswired", a)


def all_slow(net: Network) -> None:
    """Make all links slower than bought, by the same factor."""
    net.rate *= net.rng.uniform(0.3, 0.82)
    net.needs_offer = True
    net.injected.append(("fabric", frozenset(["fabric"])))


def half_slow(net: Network) -> None:
    """Make half of the hosts, or one more, slower than was bought."""
    count = len(net.hosts)
    some = net.rng.permutation(count)[: int(net.rng.integers((count + 1) // 2, count // 2 + 2))]
    level = net.rng.uniform(0.3, 0.8)
    for host in some.tolist():
        net.hold(net.of(host, "host"), level)
        named(net, "host", host)
    net.needs_offer = True


def two_at_once(net: Network) -> None:
    """Inject two faults of different hosts."""
    kinds = [slow_end("egress"), slow_end("ingress"), slow_end("host"), slow_pair, slow_way, latency(long)]
    for at in net.rng.choice(len(kinds), 2, replace=False):
        kinds[int(at)](net)


def long(net: Network) -> float:
    """Return a random extra latency of 0.2 to 5 ms, in seconds."""
    return float(np.exp(net.rng.uniform(np.log(0.2e-3), np.log(5e-3))))


def longer(net: Network) -> float:
    """Return the extra seconds that make the normal latency 2 to 20 times as long."""
    return float(net.normal_alpha_s * (net.rng.uniform(2, 20) - 1))


FAULTS: dict[str, tuple[Callable[[Network], None], dict[str, int]]] = {
    "slow egress": (slow_end("egress"), {}),
    "slow ingress": (slow_end("ingress"), {}),
    "slow host": (slow_end("host"), {}),
    "slow pair": (slow_pair, {}),
    "one-way pair": (slow_way, {}),
    "slow trunk": (slow_trunk, {"racks": 2}),
    "thin trunk": (thin_trunk, {"racks": 3}),
    "loss": (loss, {}),
    "latency, 0.2-5 ms": (latency(long), {}),
    "latency, 2-20 times": (latency(longer), {}),
    "flapping": (flapping, {}),
    "slow CPU": (slow_cpu, {"nics": 2}),
    "small MTU": (small_mtu, {}),
    "miswired": (miswired, {"racks": 2, "far": 1}),
    "all slow": (all_slow, {}),
    "half slow": (half_slow, {}),
    "two at once": (two_at_once, {}),
}


def case(kind: str, seed: int) -> Network:
    """Return a network with this kind of fault; a sound network if ``kind`` is empty."""
    rng = np.random.default_rng(seed)
    inject, needs = FAULTS[kind] if kind else (lambda net: None, {})
    net = drawn(rng, racks=needs.get("racks", 0), nics=needs.get("nics", 0), far="far" in needs)
    inject(net)
    return net


def answers(faults: Iterable[Fault], net: Network) -> set[Named]:
    """Return the kind and the hosts of each named fault.

    A rack stands for its hosts. For a trunk between a rack and all other hosts, either side counts as right.
    """
    racks = {f"rack{at}": hosts for at, hosts in enumerate(net.racks())}
    truth = {parts for kind, parts in net.injected if kind == "trunk"}
    found: set[Named] = set()
    for fault in faults:
        if fault.kind == "trunk":
            sides = [frozenset(racks.get(part, part.split(","))) for part in fault.parts]
            meant = [side for side in sides if side in truth] or [frozenset().union(*sides)]
            if len(sides) == 2 and frozenset().union(*sides) != frozenset(net.hosts):
                meant = [frozenset().union(*sides)]
            found.add(("trunk", meant[0]))
        else:
            found.add((fault.kind, frozenset(fault.parts)))
    return found


def thresholds(profile: Profile, net: Network) -> set[frozenset[str]]:
    """Return the parts that simple thresholds name."""
    host = net.host_of
    src, dst = host[profile.links.src], host[profile.links.dst]
    between = src != dst
    rate = 1 / profile.links.beta_s_per_byte
    normal = net.normal_rate if net.needs_offer else float(np.median(rate[between]))
    low = between & (rate < THRESHOLD * normal)
    found: set[frozenset[str]] = set()
    count = len(net.hosts)
    slow: set[int] = set()
    for end in (src, dst):
        bad, every = (np.bincount(end[these], minlength=count) for these in (low, between))
        slow |= set(np.flatnonzero(bad > every / 2).tolist())
    found |= {frozenset([net.hosts[at]]) for at in slow}
    for a, b in set(zip(src[low].tolist(), dst[low].tolist(), strict=True)):
        if not slow & {a, b}:
            found.add(frozenset([net.hosts[a], net.hosts[b]]))
    return found


def bisection(net: Network, profile: Profile) -> set[frozenset[str]]:
    """Return the parts that bisection names: it halves groups whose ring collective is slow."""
    count, host = len(net.hosts), net.host_of
    src, dst = host[profile.links.src], host[profile.links.dst]
    rate = np.full((count, count), np.inf)
    np.minimum.at(rate, (src, dst), 1 / profile.links.beta_median_s_per_byte)
    normal = net.normal_rate

    def fails(group: list[int]) -> bool:
        ring = zip(group, group[1:] + group[:1], strict=True)
        return bool(min(rate[a, b] for a, b in ring) < THRESHOLD * normal)

    suspects: list[list[int]] = []
    queue = [list(range(count))]
    while queue:
        group = queue.pop()
        if len(group) < 2 or not fails(group):
            continue
        if len(group) <= 3:
            suspects.append(group)
            continue
        half = len(group) // 2
        parts = [group[:half], group[half:]]
        failing = [part for part in parts if fails(part)]
        # If neither half fails alone, the slow link lies between them: try pairs of one host from each half.
        queue += failing or [[a, b] for a, b in zip(*parts, strict=False)]
    bad = {at for group in suspects for at in group}
    good = [at for at in range(count) if at not in bad][:3]
    found: set[frozenset[str]] = set()
    for group in suspects:
        hosts = [at for at in group if good and sum(fails([at, one]) for one in good) > len(good) / 2]
        found |= {frozenset([net.hosts[at]]) for at in hosts}
        for a, b in itertools.combinations(group, 2):
            if not {a, b} & set(hosts) and fails([a, b]):
                found.add(frozenset([net.hosts[a], net.hosts[b]]))
    return found


@dataclass
class Row:
    """The counts of one kind of fault."""

    cases: int = 0
    right: int = 0
    wrong: int = 0
    missed: int = 0
    rivals: list[int] = field(default_factory=lambda: [0, 0])


def judge(row: Row, net: Network, verbose: bool = False, label: str = "") -> float:
    """Count one case; return the seconds of its localization."""
    profile = measured(net)
    offer = net.offer() if net.needs_offer or net.rng.random() < 0.3 else None
    plan = net.plan() if net.needs_plan or (max(net.rack) > 0 and net.rng.random() < 0.4) else None
    began_s = time.perf_counter()
    faults = locate(profile, offer, plan)
    seconds = time.perf_counter() - began_s
    found, truth = answers(faults, net), set(net.injected)
    row.cases += 1
    row.right += found == truth
    row.wrong += bool(found - truth)
    row.missed += bool(truth - found)
    parts = {part for _, part in truth}
    for at, other in enumerate((bisection(net, profile), thresholds(profile, net))):
        row.rivals[at] += other == parts
    if verbose and found != truth:
        racks = np.bincount(net.rack).tolist()
        print(f"{label}: {len(net.hosts)} hosts, {net.nics} NICs, racks {racks}, {plan and 'plan'}, ", end="")
        print(f"{offer and 'offer'}, noise {net.noise:.3f}, truth {sorted(map(str, truth))[:4]}")
        for one in faults[:6]:
            print("    ", one.kind, one.parts, f"{one.level:.3f} {one.extra_s:.2e}", one.evidence)
    return seconds


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--clean", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", default="", help="only this kind")
    parser.add_argument("-v", "--verbose", action="store_true", help="print each case that is not right")
    options = parser.parse_args()
    kinds = [options.kind] if options.kind else list(FAULTS)
    rows = {kind: Row() for kind in kinds}
    seconds = []
    for number in range(options.cases):
        kind = kinds[number % len(kinds)]
        seed = 1_000_003 * options.seed + number
        seconds.append(judge(rows[kind], case(kind, seed), options.verbose, f"{kind} #{number}"))
    clean = Row()
    for number in range(options.clean):
        seed = 1_000_003 * options.seed + 500_000 + number
        seconds.append(judge(clean, case("", seed), options.verbose, f"clean #{number}"))
    print("kind                 cases   right  wrong  missed  bisection  thresholds")
    total = Row()
    for kind, row in rows.items():
        line(kind, row)
        for name in ("cases", "right", "wrong", "missed"):
            setattr(total, name, getattr(total, name) + getattr(row, name))
        total.rivals = [a + b for a, b in zip(total.rivals, row.rivals, strict=True)]
    line("all", total)
    if clean.cases:
        alarms = [1 - one / clean.cases for one in (clean.right, *clean.rivals)]
        print(
            f"clean: {clean.cases} networks, false alarms {alarms[0]:.1%}; "
            f"bisection {alarms[1]:.1%}, thresholds {alarms[2]:.1%}"
        )
    if seconds:
        print(f"seconds: median {np.median(seconds):.3f}, most {max(seconds):.2f}")


def line(kind: str, row: Row) -> None:
    """Print one row of the table."""
    if row.cases:
        shares = (row.right, row.wrong, row.missed, *row.rivals)
        values = [one / row.cases for one in shares]
        print(
            f"{kind:20} {row.cases:5}  {values[0]:6.1%} {values[1]:6.1%} {values[2]:7.1%}  "
            f"{values[3]:9.1%}  {values[4]:10.1%}"
        )


if __name__ == "__main__":
    main()
