"""Faults that show only when all hosts send at once: an oversubscribed core, or a switch that is too slow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from exec.acceptance.certificate import Culprit
from exec.acceptance.network_bought import usual_costs
from probes.base import Floats, floats, plural, rate_text
from probes.link_costs import ConcurrentFlows, Profile
from probes.localization import Bought, FabricPlan, Fault

__all__ = ["crowded_flows", "expected_s"]

# Flows that reach less than this share of their normal rate at once share a bottleneck. Two flows through a
# port made for one reach 0.5; the margin is for bursts and disturbances.
_LOW = 0.75
# If a rank waited for a core for more than this share of a round, its time says nothing about the network.
_MOST_WAITED = 0.5


def crowded_flows(
    profile: Profile | None, bought: Bought | None, plan: FabricPlan | None, faults: Sequence[Fault]
) -> Iterator[Culprit]:
    """Yield a culprit for each round whose flows are slower together than what was bought and planned.

    Flows over links with a fault of their own are left out. Nothing is said if a trunk or the whole fabric is
    at fault already, or if ranks waited for cores. An oversubscribed core is a fault if the plan gives the
    rate of trunks, else a remark, because it may have been bought like this.
    """
    if profile is None or any(fault.kind in ("trunk", "fabric") for fault in faults):
        return
    plan = plan or FabricPlan()
    rows = {row for fault in faults for row in fault.rows}
    links = profile.links
    slow = {(int(links.src[row]), int(links.dst[row])) for row in rows}
    for flows in profile.concurrent:
        expected = expected_s(flows, profile, bought, plan)
        if flows.waited > _MOST_WAITED or expected is None:
            continue
        pairs = zip(flows.src.tolist(), flows.dst.tolist(), strict=True)
        kept = np.array([pair not in slow for pair in pairs])
        if not kept.any():
            continue
        # The network may be blamed only for the time in which ranks had cores.
        seconds = floats(flows.seconds[kept] * (1 - flows.waited))
        level = float(np.median(expected[kept] / seconds))
        if level < _LOW:
            yield _culprit(flows, expected[kept], seconds, level, plan)


def expected_s(
    flows: ConcurrentFlows, profile: Profile, bought: Bought | None, plan: FabricPlan
) -> Floats | None:
    """Return the normal seconds of each flow while all others run; None if they are not known.

    Ranks of a host share its NICs, and flows between racks share trunks. If the rate of the NICs was not
    given, times are known only for one rank per host: then a flow is normally as fast as its link alone.
    """
    hosts = [rank.host for rank in profile.ranks]
    ends = [(hosts[src], hosts[dst]) for src, dst in zip(flows.src.tolist(), flows.dst.tolist(), strict=True)]
    crowd = Counter(src for src, _ in ends), Counter(dst for _, dst in ends)
    if bought is None or bought.nic_bytes_per_s is None:
        if max(max(one.values()) for one in crowd) > 1:
            return None
        beta, nics = usual_costs(profile, plan)("rack").beta_s_per_byte, 1
    else:
        beta, nics = 1 / (bought.nic_bytes_per_s * bought.goodput), bought.nics
    s_per_byte = [beta * max(1.0, crowd[0][src] / nics, crowd[1][dst] / nics) for src, dst in ends]
    if plan.trunk_bytes_per_s is not None:
        goodput = bought.goodput if bought else Bought("").goodput
        racks = [(plan.rack_of(src), plan.rack_of(dst)) for src, dst in ends]
        out, into = (Counter(pair[end] for pair in racks if pair[0] != pair[1]) for end in (0, 1))
        for at, (source_rack, target_rack) in enumerate(racks):
            if source_rack != target_rack:
                shared = max(out[source_rack], into[target_rack]) / (plan.trunk_bytes_per_s * goodput)
                s_per_byte[at] = max(s_per_byte[at], shared)
    return floats(np.array(s_per_byte) * flows.size_bytes)


def _culprit(
    flows: ConcurrentFlows, expected: Floats, seconds: Floats, level: float, plan: FabricPlan
) -> Culprit:
    measured, usual = (rate_text(flows.size_bytes / float(np.median(one))) for one in (seconds, expected))
    crossing = flows.name != "all NICs"
    known = plan.trunk_bytes_per_s is not None or not crossing
    where = f"{flows.name}, {plural(len(seconds), 'flow')} at once"
    share = f"{100 * level:.0f} % of the normal {usual}"
    text = f"{where}: each carries {measured}, {share}, though alone they are normal"
    slowest = f"fastest flow {seconds.min():.3g} s, slowest {seconds.max():.3g}"
    remedy = (
        "count the uplinks that are up, and compare their rates with the plan; look at the hashing of flows"
        if crossing
        else "check the switch's capacity and pause counters, and the PCIe path of hosts with several NICs"
    )
    return Culprit(
        "core",
        "the core of the network" if crossing else "the switches",
        (),
        "fault" if known else "remark",
        text,
        (f"{slowest} s, normal {np.median(expected):.3g} s",),
        "certain" if known else "possible",
        remedy,
    )
