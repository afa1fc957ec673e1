"""Further symptoms: lost packets, slow processors, thin trunks, and slow links inside hosts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np

from probes.base import Floats, rate_text
from probes.link_costs import HostMemory, Profile, SentSegments, SharedPort
from probes.localization.fit import Ceiling, explain
from probes.localization.links import LinkTable
from probes.localization.model import Bought, FabricPlan, Fault, joined
from probes.localization.normal import SHORT, level, noise, slots
from probes.localization.parts import FABRIC, families_inside
from probes.localization.racks import Racks
from probes.statistics import MAD_TO_SIGMA

__all__ = ["inside_hosts", "lossy_hosts", "shunned", "slow_processors", "slow_trunks", "times_slower"]

# A processor is slow if copies and sums take over 1.25 times as long as on most hosts. If hosts are unequal,
# the limit rises to _Z standard deviations, at most twice _SLOW_CPU (logarithms). Memory channels and other
# programs make equal hosts differ by up to a fifth. _FEWEST_HOSTS hosts (or trunks) are needed to tell which
# one differs.
_SLOW_CPU, _Z = float(np.log(1.25)), 4.5
_FEWEST_HOSTS = 3
# A trunk is slow if it carries less than this share of its normal rate. _LEAST_INSIDE has the smallest losses
# of rate inside hosts that count, as logarithms.
_SLOW_TRUNK = 0.8
_LEAST_INSIDE = {"end": -float(np.log(0.8)), "pair": -float(np.log(0.75)), FABRIC: SHORT}
# Packets to one host get lost if its share of retransmissions is at most this fraction of the next lowest
# host's share, and that next host retransmitted at least _FEWEST_RETRANSMITTED segments.
_SHUNNED, _FEWEST_RETRANSMITTED = 0.2, 10


def lossy_hosts(segments: Sequence[SentSegments]) -> dict[str, SentSegments]:
    """Return the hosts that lose outgoing packets more often than most hosts."""
    usual = float(np.median([segment.share for segment in segments])) if segments else 0.0
    # If packets to one host are lost, all other hosts retransmit some, so only over three times the median
    # counts.
    return {segment.host: segment for segment in segments if segment.lossy and segment.share > 3.0 * usual}


def shunned(segments: Sequence[SentSegments]) -> str:
    """Return the only host that retransmits little where all others retransmit, "" if there is none.

    Packets to that host get lost.
    """
    if len(segments) < _FEWEST_HOSTS:
        return ""
    least, *others = sorted(segments, key=lambda segment: segment.share)
    second = others[0]
    lost = second.retransmitted >= _FEWEST_RETRANSMITTED and least.share <= _SHUNNED * second.share
    return least.host if lost else ""


def times_slower(memory: Sequence[HostMemory]) -> dict[str, float]:
    """Return by what factor copies and sums take longer on each host than on most."""
    if len(memory) < 2 or len({one.sizes_bytes for one in memory}) > 1:
        return {}
    costs = np.log([[*one.copy_s_per_byte, *one.add_s_per_byte] for one in memory])
    # With an even number of hosts, the faster of the middle two is normal, because nothing makes a processor
    # too fast.
    usual = np.sort(costs, axis=0)[(len(memory) - 1) // 2]
    slower = np.median(costs - usual, axis=1)
    return {one.host: float(np.exp(value)) for one, value in zip(memory, slower, strict=True)}


def slow_processors(memory: Sequence[HostMemory]) -> Iterator[Fault]:
    """Yield the hosts whose copies and sums in memory are slow; at least two hosts are needed."""
    slower = times_slower(memory)
    values = np.log(np.array(list(slower.values()))) if slower else np.zeros(0)
    spread = MAD_TO_SIGMA * float(np.median(np.abs(values))) if len(values) else 0.0
    for one, value in zip(memory, values, strict=False):
        if value > max(_SLOW_CPU, min(_Z * spread, 2 * _SLOW_CPU)):
            normal = 1e-9 * np.exp(value) / one.copy_s_per_byte[-1]
            speed = 1e-9 / one.copy_s_per_byte[-1]
            yield Fault(
                "cpu",
                (one.host,),
                level=float(np.exp(-value)),
                evidence=(
                    f"{one.host} copies and adds in memory {np.exp(value):.2f} times as slowly as most "
                    f"hosts: {speed:.3g} GB/s copied by a core, normal is {normal:.3g}",
                ),
                sure="certain" if len(memory) >= _FEWEST_HOSTS else "likely",
            )


def slow_trunks(profile: Profile, racks: Racks | None, plan: FabricPlan | None) -> Iterator[Fault]:
    """Yield trunks whose measured total rate is below the planned rate, or below other trunks' rates.

    Such a trunk may carry one link at its full rate, but not enough links at once.
    """
    trunks = [port for port in profile.ports if port.trunk_sides and port.s_per_byte > 0]
    planned = plan.trunk_bytes_per_s if plan is not None else None
    if not trunks or not (planned or len(trunks) >= _FEWEST_HOSTS):
        return
    usual = planned or float(np.median([1 / port.s_per_byte for port in trunks]))
    found: dict[tuple[str, ...], Fault] = {}
    for port in trunks:
        carried = 1 / port.s_per_byte
        sides = port.trunk_sides
        # A trunk need not carry more than the hosts of its smaller side can send.
        normal = min(usual, _sent_by(min(sides, key=len), port, profile))
        if carried < _SLOW_TRUNK * normal:
            parts = _trunk_parts(sides, racks, profile)
            rates = f"{rate_text(carried)} in all, normal is {rate_text(normal)}"
            text = f"flows through {port.name} carry {rates}"
            sure: Literal["certain", "likely"] = "certain" if planned else "likely"
            fault = Fault("trunk", parts, carried / normal, 0.0, port.links, (text,), sure)
            before = found.get(parts)
            found[parts] = fault if before is None else joined(before, fault)
    yield from found.values()


def _sent_by(hosts: Sequence[str], port: SharedPort, profile: Profile) -> float:
    """Return what the hosts can send together: each NIC as fast as the fastest link through the port."""
    nics = {(rank.host, rank.nic) for rank in profile.ranks if rank.host in set(hosts)}
    return len(nics) / float(profile.links.beta_s_per_byte[list(port.links)].min())


def inside_hosts(table: LinkTable, bought: Bought | None) -> Iterator[Fault]:
    """Yield what is slow inside hosts: a rank, a pair of ranks, all of a host.

    The links between the same two positions in all hosts are compared, because links inside a host differ by
    design. With fewer than three hosts, or hosts with different numbers of ranks, all links are compared with
    each other if most are alike.
    """
    if not len(table):
        return
    usual = _usual_inside(table)
    if usual is None:
        return
    expected = bought.inside_bytes_per_s if bought is not None else None
    short = float(np.log(expected) - usual.max()) if expected else 0.0
    if short > SHORT:
        usual = usual + short
    deviation = table.rate - usual
    sigma = noise(deviation, least=0.02)
    model = Ceiling(deviation, np.maximum(sigma, table.width))
    for cause in explain(model, families_inside(table, _LEAST_INSIDE, fabric=bool(expected))).causes:
        at = cause.links
        carried, normal = (rate_text(float(np.exp(np.median(one[at])))) for one in (table.rate, usual))
        # With two links, the only one to compare with is the way back.
        what = "the way back carries" if len(table) == 2 else "normal is"
        text = f"{len(at)} of {len(at)} {cause.subject} carry {carried}, {what} {normal}"
        rows = tuple(table.row[at].tolist())
        level = float(np.exp(-cause.severity))
        measured = len(at) > 2 or bool((table.again | table.often)[at].all())
        confirmed = measured and not table.starved[at].any()
        yield Fault("inside", cause.parts, level, 0.0, rows, (text,), confirmed=confirmed)


def _usual_inside(table: LinkTable) -> Floats | None:
    """Return the normal logarithm of the rate of each link inside a host; None if nothing is comparable."""
    ends = table.ends
    hosts = len(ends.host_names)
    if hosts >= _FEWEST_HOSTS and len(set(np.bincount(ends.host).tolist())) == 1:
        classes = slots(table, ends.slot)
        found = np.empty(len(table))
        for one in np.unique(classes):
            here = classes == one
            found[here] = level(table.rate[here], table.src_host[here], table.dst_host[here], hosts)
        return found
    whole = level(table.rate, table.src, table.dst, len(ends.host))
    # Some links may be faster than most by design, such as NVLink bridges.
    alike = np.abs(table.rate - whole) < _LEAST_INSIDE["end"]
    return np.full(len(table), whole) if alike.mean() >= 0.5 else None


def _trunk_parts(sides: Sequence[Sequence[str]], racks: Racks | None, profile: Profile) -> tuple[str, ...]:
    """Return the known racks at a trunk's ends; lists of hosts if no rack is known."""
    every = list(dict.fromkeys(rank.host for rank in profile.ranks))
    named = []
    for side in sides:
        hosts = set(side)
        inside = [
            rack
            for number, rack in enumerate(racks.names if racks is not None else ())
            if racks is not None
            and {host for host, of in zip(every, racks.of_host, strict=True) if of == number} == hosts
        ]
        named.append(inside[0] if inside else "")
    if all(named):
        return tuple(sorted(named, key=lambda rack: racks.names.index(rack) if racks is not None else 0))
    if any(named):
        return tuple(rack for rack in named if rack)
    return tuple(sorted(",".join(sorted(side, key=every.index)) for side in sides))
