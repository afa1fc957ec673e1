"""Findings of a profile: its faults as sentences, and as flags of the links at fault."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from probes.link_costs import FAULT_FLAGS, FindingKind, Links, Profile
from probes.localization import Bought, FabricPlan, Fault, FaultKind, locate, summary_of

__all__ = ["confirmed", "faults_of", "is_single", "suspected", "with_faults"]

# The flag of the links of a fault. Links of a host are flagged by the direction that is slow.
_FLAGS: dict[FaultKind, str] = {
    "egress": "slow_sender",
    "ingress": "slow_receiver",
    "trunk": "slow_trunk",
    "latency": "late",
    "loss": "lossy",
    "flapping": "flapping",
    "cpu": "slow_cpu",
}
_OTHER_FLAG = "outlier"


def suspected(profile: Profile, bought: Bought | None = None, plan: FabricPlan | None = None) -> list[Fault]:
    """Return all faults that may explain the profile, also links that may only have been disturbed."""
    return locate(profile, bought, plan, disturbed=True)


def faults_of(profile: Profile, bought: Bought | None = None, plan: FabricPlan | None = None) -> list[Fault]:
    """Return the faults of a profile to report."""
    return confirmed(profile, suspected(profile, bought, plan))


def confirmed(profile: Profile, faults: Sequence[Fault]) -> list[Fault]:
    """Return the faults to report: single links only if they were measured again, alone."""
    again = set(np.flatnonzero(profile.links.flagged("retested")).tolist())
    return [
        fault
        for fault in faults
        if fault.confirmed and (not is_single(fault) or not again.isdisjoint(fault.rows))
    ]


def is_single(fault: Fault) -> bool:
    """Return whether the fault is in the link between two parts, not in a part with several links."""
    return len(fault.parts) == 2 and fault.kind not in ("trunk", "loss")


def with_faults(profile: Profile, faults: Sequence[Fault], *, bought: bool = False) -> Profile:
    """Return the profile with the findings and flags of these faults, in place of those of other faults.

    Findings of faults come after findings of what was not measured, and before doubts. With ``bought``, a
    slow fabric is compared with the rate that was bought.
    """
    # Older profiles do not say of which kind a finding is.
    unknown: FindingKind = "doubtful"
    kinds = profile.finding_kinds or (unknown,) * len(profile.findings)
    others: list[tuple[FindingKind, str]] = [
        (kind, text) for kind, text in zip(kinds, profile.findings, strict=True) if kind != "slow"
    ]
    at = sum(kind in ("dead", "incomplete") for kind, _ in others)
    slow: list[tuple[FindingKind, str]] = [("slow", summary_of(fault, bought=bought)) for fault in faults]
    found = [*others[:at], *slow, *others[at:]]
    return replace(
        profile,
        links=_flagged(profile, faults),
        findings=tuple(text for _, text in found),
        finding_kinds=tuple(kind for kind, _ in found),
    )


def _flagged(profile: Profile, faults: Sequence[Fault]) -> Links:
    """Return the links with the flags of the faults before the others."""
    words = [[word for word in flags.split(",") if word not in FAULT_FLAGS] for flags in profile.links.flags]
    for fault in reversed(faults):
        for row, word in _flags_of(fault, profile):
            if word not in words[row]:
                words[row].insert(0, word)
    return replace(profile.links, flags=tuple(",".join(filter(None, one)) for one in words))


def _flags_of(fault: Fault, profile: Profile) -> Iterator[tuple[int, str]]:
    """Yield the rows of a fault, each with its flag; a fault of latency flags both ways."""
    links = profile.links
    row_of: dict[tuple[int, int], int] = {}
    if fault.kind == "latency":
        pairs = zip(links.src.tolist(), links.dst.tolist(), strict=True)
        row_of = {pair: row for row, pair in enumerate(pairs)}
    for row in fault.rows:
        src, dst = int(links.src[row]), int(links.dst[row])
        if fault.kind == "host":
            sends = any(part.split(" ")[0] == profile.ranks[src].host for part in fault.parts)
            yield row, _FLAGS["egress" if sends else "ingress"]
        else:
            yield row, _FLAGS.get(fault.kind, _OTHER_FLAG)
        if (dst, src) in row_of:
            yield row_of[dst, src], _FLAGS["latency"]
