"""Localization: from a profile to the fewest faults that explain it, each named with its evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from probes.base import Indices, longs, rate_text
from probes.link_costs import Profile
from probes.localization.fit import Cause
from probes.localization.latency import Latencies, latencies, one_a_pair
from probes.localization.links import LinkTable, tables_of
from probes.localization.model import Bought, FabricPlan, Fault, joined
from probes.localization.normal import normal, slots
from probes.localization.parts import WHOLE, is_trunk
from probes.localization.racks import Racks, by_latency, by_plan, by_ports, moved
from probes.localization.rates import UNSTEADY, Rates, Unsteadiness, rates, unsteadiness
from probes.localization.symptoms import (
    inside_hosts,
    lossy_hosts,
    shunned,
    slow_processors,
    slow_trunks,
)

__all__ = ["divisions_of", "locate"]

# A cause is certain if its gain is at least this many times its penalty, otherwise likely.
_CLEAR = 2.0
# A slow processor explains a fault of its host if the fault's level is at least the processor's divided by
# this.
_BY_CPU = 1.4
# The most bytes that a TCP connection has in flight. Linux's default limit of the receive buffer is 6 MiB
# (net.ipv4.tcp_rmem), of which a short measurement uses only a part. Latency limits the rate of a link if the
# normal rate times the link's round trip exceeds _IN_FLIGHT_BYTES, and its latency is over three times the
# usual one (_LONG, a logarithm).
_IN_FLIGHT_BYTES = 1 << 20
_LONG = float(np.log(3.0))
# Links that lose packets vary by over this much more than others. Variation is the logarithm of the median or
# 90th percentile time over the best.
_LOSS_VARIES = 0.1
# The load of a host alone does not slow its parts to less than this share of their normal rate. In labs on
# overloaded machines, most links of a starved rank lost up to a seventh of their rate.
_PLAIN = 0.8
# Causes of one link or of both ways of a pair. A momentary disturbance may look like such a cause.
_SINGLE = ("pair", "one_way_pair")

_Ends = dict[tuple[str, ...], Fault]


@dataclass(frozen=True, eq=False)
class _Between:
    """The findings about the links between hosts."""

    table: LinkTable
    latencies: Latencies
    rates: Rates
    unsteady: Unsteadiness
    racks: Racks | None
    misplaced: list[Fault]


def locate(
    profile: Profile,
    bought: Bought | None = None,
    plan: FabricPlan | None = None,
    *,
    disturbed: bool = False,
) -> list[Fault]:
    """Return the fewest faults that explain the profile, the worst first; none if all is normal.

    The normal value is what most parts of the cluster reach, or what was ``bought`` if the cluster falls
    short of that. ``plan`` says which hosts and NICs share switches; without it, racks are inferred where
    latencies or rates show them. If many single links that were measured only once are slow, most of them
    were disturbed. They are then left out, unless ``disturbed`` asks for them. Takes O(n² log n) per fault
    for n ranks.
    """
    table, inside = tables_of(profile)
    processors = list(slow_processors(profile.memory))
    found: list[Fault] = []
    if len(table):
        between = _between(profile, table, bought, plan, disturbed=disturbed)
        found = _without_links_of_trunks(list(_link_faults(between, bought, plan)))
        found = _with_flapping_hosts(found, between.unsteady.table)
        found = _without_unproven(_without_variations(_with_lossy(found, between, profile)), between.table)
        found += _other_trunks(found, slow_trunks(profile, between.racks, plan))
        found += between.misplaced
    within = inside.at(np.flatnonzero(~np.isin(inside.src_host, _crowded(profile, inside))))
    found = _without_doubtful([*found, *inside_hosts(within, bought)])
    return sorted(_with_processors(found, processors), key=_badness)


def _crowded(profile: Profile, table: LinkTable) -> list[int]:
    """Return the numbers of the hosts whose processes outnumber their cores.

    The rate of a link there depends on when its ends get cores, so it shows no fault of a part.
    """
    crowded = profile.crowded_hosts
    return [number for number, name in enumerate(table.ends.host_names) if name in crowded]


def _between(
    profile: Profile, table: LinkTable, bought: Bought | None, plan: FabricPlan | None, *, disturbed: bool
) -> _Between:
    """Explain latencies, rates and unsteadiness of the links between hosts."""
    hosts = table.ends.host_names
    slot, misplaced = _rails(table, plan)
    classes = slots(table, slot)
    once = one_a_pair(table)
    racks, moves = _racks(table, once, slot, plan)
    misplaced += moves
    # Racks that only trunks show do not explain latencies, because no latency shows them.
    distant = [racks] if racks is not None and racks.is_division else []
    divisions = distant if plan is not None and plan.racks else _with_trunks(distant, profile, hosts)
    bought_s = bought.latency_s if bought is not None else None
    return _Between(
        table,
        latencies(once, slots(once, slot), distant, bought_s),
        rates(table, classes, divisions, bought, plan, disturbed=disturbed),
        unsteadiness(table, divisions),
        divisions[0] if divisions else racks,
        misplaced,
    )


def divisions_of(profile: Profile) -> list[Racks]:
    """Return the divisions of hosts into racks that latencies and measured trunks show."""
    table, _ = tables_of(profile)
    if not len(table):
        return []
    racks, _ = _racks(table, one_a_pair(table), table.ends.slot, None)
    distant = [racks] if racks is not None and racks.is_division else []
    return _with_trunks(distant, profile, table.ends.host_names)


def _with_trunks(divisions: list[Racks], profile: Profile, hosts: Sequence[str]) -> list[Racks]:
    """Return the divisions, and the division that the measured trunks show if it is new."""
    trunks = by_ports(profile.ports, hosts)
    known = {division.key() for division in divisions}
    return [*divisions, *([trunks] if trunks is not None and trunks.key() not in known else [])]


def _rails(table: LinkTable, plan: FabricPlan | None) -> tuple[Indices, list[Fault]]:
    """Return the rail of each rank (by default, its position in its host), and NICs on a wrong rail."""
    ends = table.ends
    if plan is None or not plan.rails:
        return ends.slot, []
    by_name = {f"{host} {nic}": rail for (host, nic), rail in plan.rails.items()}
    by_name |= {host: rail for (host, _), rail in plan.rails.items() if host in ends.nic_names}
    planned = longs([by_name.get(name, -1) for name in ends.nic_names])
    if (planned < 0).any():
        return ends.slot, []
    once = one_a_pair(table)
    # Latencies are taken relative to the latency of the nearest NICs of the same two hosts, so that the
    # distance between racks cancels out.
    codes = once.src_host.astype(np.int64) * len(ends.host_names) + once.dst_host
    codes = np.unique(codes, return_inverse=True)[1]
    nearest = np.full(int(codes.max(initial=0)) + 1, np.inf)
    np.minimum.at(nearest, codes, once.alpha)
    count = int(planned.max()) + 1
    rails = Racks(planned, tuple(map(str, range(count))))
    nics = longs([ends.nic[once.src], ends.nic[once.dst]])
    same = np.zeros(len(once), dtype=np.int64)
    moves = moved(rails, nics, once.alpha - nearest[codes], same, once.jitter)
    faults = [
        Fault(
            "miswired",
            (ends.nic_names[nic],),
            evidence=(
                f"latencies of {ends.nic_names[nic]} are those of rail {rail}, "
                f"the plan says rail {planned[nic]}",
            ),
        )
        for nic, rail in sorted(moves.items())
    ]
    actual = planned.copy()
    actual[list(moves)] = list(moves.values())
    return actual[ends.nic], faults


def _racks(
    table: LinkTable, once: LinkTable, slot: Indices, plan: FabricPlan | None
) -> tuple[Racks | None, list[Fault]]:
    """Return the actual racks, and a fault for each host that is not in its planned rack."""
    hosts = table.ends.host_names
    plain = once.alpha + normal(once, -once.alpha, slots(once, slot)) if len(once) else once.alpha
    if plan is None or not plan.racks:
        return by_latency(once, plain, hosts), []
    racks = by_plan(plan, hosts)
    ends = longs([once.src_host, once.dst_host])
    moves = moved(racks, ends, plain, slots(once, slot), once.jitter)
    division = racks.of_host.copy()
    division[list(moves)] = list(moves.values())
    faults = [
        Fault(
            "miswired",
            (hosts[host],),
            evidence=(
                f"latencies of {hosts[host]} are those of rack {racks.names[rack]}, "
                f"the plan says rack {racks.names[racks.of_host[host]]}",
            ),
        )
        for host, rack in sorted(moves.items())
    ]
    return Racks(division, racks.names), faults


def _link_faults(between: _Between, bought: Bought | None, plan: FabricPlan | None) -> Iterator[Fault]:
    """Yield the faults of links; a part's rate fault merges with its flapping or latency fault."""
    known = plan is not None or bought is not None
    slow = _by_part(_rate_fault(cause, between.rates, known=known) for cause in between.rates.found.causes)
    late = _by_part(_latency_fault(cause, between.latencies) for cause in between.latencies.found.causes)
    unsteady = _by_part(_flapping_fault(cause, between.unsteady.table) for cause in between.unsteady.causes)
    for parts, fault in unsteady.items():
        by_rate = slow.get(parts)
        if by_rate is None:
            yield fault
        elif fault.level < by_rate.level:
            yield replace(fault, evidence=(*fault.evidence, *by_rate.evidence))
            del slow[parts]
    for parts, fault in slow.items():
        if parts not in late:
            yield fault
    for parts, fault in late.items():
        if parts not in slow:
            yield fault
        elif not slow[parts].confirmed or _is_long(fault, between) or _is_whole(slow[parts], between.table):
            yield replace(fault, level=slow[parts].level, evidence=(*fault.evidence, *slow[parts].evidence))
        else:
            evidence = (*slow[parts].evidence, *fault.evidence)
            yield replace(slow[parts], extra_s=fault.extra_s, evidence=evidence)


def _by_part(faults: Iterable[Fault]) -> _Ends:
    """Return the faults by the names of their parts; both ways of one part become one fault."""
    found: _Ends = {}
    for fault in faults:
        parts = tuple(sorted(fault.parts))
        before = found.get(parts)
        found[parts] = fault if before is None else joined(before, fault)
    return found


def _rate_fault(cause: Cause, rates: Rates, *, known: bool) -> Fault:
    at = cause.links
    slow = at[rates.deviation[at] < -0.5 * cause.severity]
    measured, usual = (float(np.exp(np.median(values[slow]))) for values in (rates.table.rate, rates.level))
    # With two links, the only one to compare with is the way back.
    normal = "the way back carries" if len(rates.table.rate) == 2 else "normal is"
    text = (
        f"{len(slow)} of {len(at)} {cause.subject} carry {rate_text(measured)}, {normal} {rate_text(usual)}"
    )
    sure = _sureness(cause)
    # Two racks may be connected by a thin trunk by design.
    if is_trunk(cause.family) and not known and len(cause.parts) == 2:
        sure = "possible"
    rows = tuple(rates.table.row[slow].tolist())
    level, table = float(np.exp(-cause.severity)), rates.table
    if cause.kind in _SINGLE:
        confirmed = bool(((table.again | table.often) & ~table.starved)[at].all())
    else:
        # Rates that vary by more than they fall short of normal show no fault of a part.
        steady = float(np.median(table.late[slow])) < cause.severity
        often = bool(table.often[slow].mean() > 0.5)
        plain = level < _PLAIN and (steady or not table.distant[slow].all())
        confirmed = plain or not table.starved[slow].any() or (often and steady)
    return Fault(cause.kind, cause.parts, level, 0.0, rows, (text,), sure, confirmed)


def _latency_fault(cause: Cause, found: Latencies) -> Fault:
    at = cause.links
    late = at[found.alpha_s[at] > found.normal_s[at] + 0.5 * cause.severity]
    measured, usual = float(np.median(found.alpha_s[late])), float(np.median(found.normal_s[late]))
    text = f"{len(late)} of {len(at)} {cause.subject} take {_time(measured)}, normal is {_time(usual)}"
    rows = tuple(found.table.row[late].tolist())
    return Fault("latency", cause.parts, 1.0, cause.severity, rows, (text,), _sureness(cause))


def _flapping_fault(cause: Cause, table: LinkTable) -> Fault:
    at = cause.links
    times, usual = np.exp(np.median(table.late[at])), np.exp(table.usual_late)
    text = (
        f"{len(at)} {cause.subject} are unsteady: one message of ten takes {times:.2f} times as long "
        f"as the fastest, normal is {usual:.2f}"
    )
    rows = tuple(table.row[at].tolist())
    level = float(np.exp(-cause.severity))
    # Measuring an unsteady link once more confirms nothing; samples of several passes do.
    confirmed = cause.kind not in _SINGLE or bool(table.often[at].all())
    return Fault("flapping", cause.parts, level, 0.0, rows, (text,), _sureness(cause), confirmed)


def _sureness(cause: Cause) -> Literal["certain", "likely", "possible"]:
    return "certain" if cause.gain >= _CLEAR * cause.penalty else "likely"


def _is_long(fault: Fault, between: _Between) -> bool:
    """Return whether the extra latency is so long that TCP's bytes in flight limit the rate."""
    usual_s = float(np.median(between.latencies.normal_s))
    rate = float(np.exp(np.median(between.rates.level)))
    round_trip_s = 2 * (usual_s + fault.extra_s)
    return bool(np.log(1 + fault.extra_s / usual_s) > _LONG and rate * round_trip_s > _IN_FLIGHT_BYTES)


def _is_whole(fault: Fault, table: LinkTable) -> bool:
    """Return whether most rates of a fault's links are of whole transfers, so that latency lowers them."""
    at = np.isin(table.row, fault.rows)
    return bool(at.any()) and float(table.whole[at].mean()) > 0.5


def _without_links_of_trunks(faults: Sequence[Fault]) -> list[Fault]:
    """Return the faults without unsteady or unconfirmed single links through a trunk at fault.

    Links through a slow trunk wait for each other.
    """
    through = {row for fault in faults if fault.kind == "trunk" for row in fault.rows}
    return [
        fault
        for fault in faults
        if fault.kind not in ("flapping", *_SINGLE)
        or (fault.confirmed and fault.kind != "flapping")
        or not through.issuperset(fault.rows)
    ]


def _with_flapping_hosts(faults: Sequence[Fault], table: LinkTable) -> list[Fault]:
    """Return the faults, with slow links of an unsteady host as one fault.

    If each link of a flapping host is measured only a few times, some links look slow, some normal, and some
    unsteady. A slightly slow link that is not confirmed is no sign of flapping.
    """
    unsteady = np.union1d(table.src_host[table.late > UNSTEADY], table.dst_host[table.late > UNSTEADY])
    names = {table.ends.host_names[host] for host in unsteady}
    single = [
        one
        for one in faults
        if len(one.parts) == 2
        and (one.kind == "flapping" or (one.kind in _SINGLE and (one.confirmed or one.level < _PLAIN)))
    ]
    counts = Counter(host for one in single for host in {_host_of(part) for part in one.parts})
    found = list(faults)
    for host, count in counts.most_common():
        mine = [one for one in found if one in single and host in map(_host_of, one.parts)]
        if host in names and count > 1 and len(mine) > 1:
            evidence = tuple(text for one in mine for text in one.evidence)
            rows = tuple(sorted({row for one in mine for row in one.rows}))
            level = float(np.median([one.level for one in mine]))
            confirmed = any(one.confirmed for one in mine)
            fault = Fault("flapping", (host,), level, 0.0, rows, evidence, "likely", confirmed)
            found = [one for one in found if one not in mine] + [fault]
    return found


def _without_unproven(faults: Sequence[Fault], table: LinkTable) -> list[Fault]:
    """Return the faults without unconfirmed faults that a few looks at sound links may also show.

    Such a fault is the unsteadiness of a single link, which needs many looks. Another is a small loss of rate
    on links of long latency: short trains do not reach their rate if an end waits for a core.
    """

    def is_unproven(fault: Fault) -> bool:
        if fault.kind in ("flapping", "latency"):
            return fault.kind == "flapping" and len(fault.parts) == 2
        at = np.isin(table.row, fault.rows)
        if not table.distant[at].all():
            return False
        return fault.level > _PLAIN or float(np.median(table.late[at])) >= -np.log(fault.level)

    return [fault for fault in faults if fault.confirmed or not is_unproven(fault)]


def _with_lossy(found: Sequence[Fault], between: _Between, profile: Profile) -> list[Fault]:
    """Return the faults, as losses if lost packets explain them, plus other lossy hosts."""
    lossy = lossy_hosts(profile.segments)
    target = shunned(profile.segments)
    place = {row: at for at, row in enumerate(between.table.row.tolist())}
    names = between.table.ends.host_names
    result: list[Fault] = []
    explained: set[str] = set()
    for fault in found:
        at = longs([place[row] for row in fault.rows])
        senders = {names[host] for host in between.table.src_host[at]} if len(at) else set()
        host = _host_of(fault.parts[0])
        of_sender = [name for name in lossy if name in senders and name in {*fault.parts, host}]
        of_target = bool(target) and target in fault.parts
        varies = fault.kind == "flapping" or _varies(between.table, at)
        if fault.kind != "trunk" and fault.parts != WHOLE and (of_sender or of_target) and varies:
            explained.update(of_sender)
            text = tuple(lossy[name].finding for name in of_sender) or (
                f"all hosts but {target} retransmitted TCP segments: packets to it get lost",
            )
            # The kernel's counters confirm the loss, whatever load does to rates.
            lost = replace(fault, kind="loss", evidence=(*text, *fault.evidence), confirmed=True)
            result.append(lost)
        else:
            explained.update(of_sender)
            result.append(fault)
    crowd = [fault for fault in found if fault.kind == "trunk" and fault.confirmed]
    result += [
        Fault("loss", (name,), evidence=(one.finding,), sure="likely")
        for name, one in lossy.items()
        if name not in explained and not any(_overflows(trunk, name, lossy, between.table) for trunk in crowd)
    ]
    return _one_loss_each(result, lossy)


def _overflows(trunk: Fault, host: str, lossy: Container[str], table: LinkTable) -> bool:
    """Return whether most hosts on this host's side of a slow trunk lose packets: its queue overflows."""
    names = table.ends.host_names
    at = np.isin(table.row, trunk.rows)
    ways = {(names[src], names[dst]) for src, dst in zip(table.src_host[at], table.dst_host[at], strict=True)}
    beyond = {dst for src, dst in ways if src == host} | {src for src, dst in ways if dst == host}
    side = {end for way in ways for end in way} - beyond
    return host in side and 2 * sum(name in lossy for name in side) > len(side)


def _one_loss_each(faults: Sequence[Fault], lossy: Container[str]) -> list[Fault]:
    """Return the faults with one loss for each part; a host that loses on several links is one part.

    A host that loses packets towards a host of long latency is also one part: a loss costs more on longer
    round trips (Mathis et al. 1997), so the other links of the sender show it less.
    """
    far = _hosts_of(fault for fault in faults if fault.kind == "latency")
    found: dict[tuple[str, tuple[str, ...]], Fault] = {}
    senders = Counter(
        part for fault in faults if fault.kind == "loss" for part in fault.parts if part in lossy
    )
    for fault in faults:
        if fault.kind == "loss":
            distant = {part for part in fault.parts if not far.isdisjoint({*fault.parts} - {part})}
            whole = [part for part in fault.parts if senders[part] > (0 if part in distant else 1)]
            fault = replace(fault, parts=tuple(whole[:1]) or fault.parts)
        key = (fault.kind, tuple(sorted(fault.parts)))
        found[key] = joined(found[key], fault) if key in found else fault
    return list(found.values())


def _without_variations(faults: Sequence[Fault]) -> list[Fault]:
    """Return the faults without links, NICs and ranks of unsteady hosts: these differ by chance."""
    unsteady = [set(fault.parts) for fault in faults if fault.kind in ("flapping", "loss")]

    def is_part_of_one(fault: Fault) -> bool:
        hosts = {_host_of(part) for part in fault.parts}
        return any(whole <= hosts and whole != set(fault.parts) for whole in unsteady)

    links = ("flapping", "loss", "pair", "one_way_pair", "egress", "ingress", "host")
    return [fault for fault in faults if fault.kind not in links or not is_part_of_one(fault)]


def _without_doubtful(faults: Sequence[Fault]) -> list[Fault]:
    """Return the faults without unconfirmed faults that another fault explains, too.

    Links through a slow trunk share it, so the rate of each depends on the load of the others. Links of a
    host at fault differ in rate. A confirmed fault explains all other faults of its hosts, an unconfirmed one
    only faults of single links.
    """
    sure = [fault for fault in faults if fault.confirmed]
    rows = {row for fault in sure for row in fault.rows}
    explained = _hosts_of(sure)
    of_links = explained | _hosts_of(fault for fault in faults if len(fault.parts) == 1)

    def is_explained(fault: Fault) -> bool:
        single = fault.kind in ("flapping", *_SINGLE) and len(fault.parts) == 2
        hosts = of_links if single else explained
        return rows.issuperset(fault.rows) or not hosts.isdisjoint(map(_host_of, fault.parts))

    return [fault for fault in faults if fault.confirmed or not is_explained(fault)]


def _hosts_of(faults: Iterable[Fault]) -> set[str]:
    return {_host_of(part) for fault in faults for part in fault.parts}


def _host_of(part: str) -> str:
    """Return the host of a part; NICs and ranks are named after their host."""
    return part.split(" ")[0]


def _varies(table: LinkTable, at: Indices) -> bool:
    """Return whether these links vary more than most."""
    if not len(at):
        return False
    more = (np.median(table.wander[at]) - table.usual_wander, np.median(table.late[at]) - table.usual_late)
    return float(max(more)) > _LOSS_VARIES


def _other_trunks(found: Sequence[Fault], trunks: Iterable[Fault]) -> list[Fault]:
    """Return the ``trunks`` that share at most half of their links with each trunk in ``found``."""
    named = [set(fault.rows) for fault in found if fault.kind == "trunk"]
    return [
        trunk
        for trunk in trunks
        if not any(2 * len(rows.intersection(trunk.rows)) > len(trunk.rows) for rows in named)
    ]


def _with_processors(found: Sequence[Fault], processors: Sequence[Fault]) -> list[Fault]:
    """Return the faults and the slow processors, which absorb the faults that they explain."""
    slow = {fault.parts[0]: fault for fault in processors}
    kept = []
    for fault in found:
        hosts = {_host_of(part) for part in fault.parts}
        cpu = slow.get(hosts.pop()) if len(hosts) == 1 else None
        if cpu is None or fault.level < cpu.level / _BY_CPU or fault.kind in ("loss", "miswired"):
            kept.append(fault)
        else:
            slow[cpu.parts[0]] = replace(joined(cpu, fault), kind="cpu", level=cpu.level)
    return [*kept, *slow.values()]


def _badness(fault: Fault) -> tuple[float, tuple[str, ...]]:
    return fault.level - fault.extra_s, fault.parts


def _time(seconds: float) -> str:
    """Return a time in ms or us with three digits."""
    return f"{1e3 * seconds:.3g} ms" if seconds >= 1e-3 else f"{1e6 * seconds:.3g} us"
