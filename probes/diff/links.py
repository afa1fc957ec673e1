"""Links of two matched machines compared: PCIe, NVLink and xGMI, and shared PCIe switches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations

from probes.diff.matching import Matched
from probes.diff.model import Difference, fact
from probes.paths import Uplink, chain, flat, functions, states_fabric, uplink
from probes.topology import FabricLink, Gpu, Host, Nic, PciDevice, label, place

__all__ = ["links"]

_NAMES = {"nvlink": "NVLinks", "xgmi": "xGMI links", "c2c": "C2C links"}


def links(matched: Matched) -> Iterator[Difference]:
    """Yield every difference in the links of two machines."""
    yield from _pcie(matched)
    if states_fabric(matched.reference) and states_fabric(matched.found):
        for expected, found in matched.gpus.both:
            yield from _fabric(matched, expected, found)
    yield from _switches(matched)


def _pcie(matched: Matched) -> Iterator[Difference]:
    """Yield the differences of links above devices and above their switches, each link once."""
    devices, now = functions(matched.reference), functions(matched.found)
    seen: set[str] = set()
    both: list[tuple[Gpu | Nic, Gpu | Nic]] = [*matched.gpus.both, *matched.nics.both]
    for expected, found in both:
        here, there = _wires(expected.bus_id, devices), _wires(found.bus_id, now)
        # Chains of different length pass other switches, so only their first links correspond.
        alike = len(here) if len(here) == len(there) else 1
        pairs = zip(here[:alike], there[:alike], strict=False)
        for one, other in pairs:
            if other.bus_id not in seen:
                seen.add(other.bus_id)
                own = other.bus_id == found.bus_id
                name = label(found) if own else f"switch {other.bus_id}"
                where = place(matched.found, found) if own else f"{matched.found.name}/{other.bus_id}"
                asleep = own and isinstance(found, Gpu)
                yield from _wire(where, name, uplink(one, devices), uplink(other, now), asleep)


def _wires(bus_id: str, devices: Mapping[str, PciDevice]) -> list[PciDevice]:
    """Return the function and the switches above it: the lower ends of the links on its path to the CPU."""
    found = chain(bus_id, devices)
    return found[:1] + [bridge for bridge in found[1:] if bridge.role in ("upstream", "switch")]


def _wire(where: str, name: str, expected: Uplink, found: Uplink, asleep: bool) -> Iterator[Difference]:
    widths = [one.width or one.max_width for one in (expected, found)]
    yield from fact(where, name, "pcie-width", *widths, shown=lambda lanes: f"x{lanes}")
    most = [one.max_speed_gts or (None if asleep else one.speed_gts) for one in (expected, found)]
    yield from fact(where, name, "pcie-speed", *most, shown=_gts)
    if most[0] == most[1] and not asleep:
        yield from fact(where, name, "pcie-speed-now", expected.speed_gts, found.speed_gts, shown=_gts)


def _gts(speed: float) -> str:
    return f"{speed:g} GT/s"


def _fabric(matched: Matched, expected: Gpu, found: Gpu) -> Iterator[Difference]:
    here, there = _links_of(expected, matched.reference), _links_of(found, matched.found)
    where, name = place(matched.found, found), label(found)
    for kind in dict.fromkeys(link.kind for link in (*here, *there)):
        counts = [_count(own, kind) for own in (here, there)]
        down = sum(link.count for link in there if link.kind == kind and link.state == "down")
        if counts[0] != counts[1]:
            tail = f" ({down} down)" if down else ""
            text = f"{name}: expected {counts[0]} {_NAMES[kind]}, found {counts[1]}{tail}"
            less = counts[1] < counts[0]
            words = (str(counts[0]), str(counts[1]))
            yield Difference(f"{kind}-count", "critical" if less else "info", where, text, *words)
        else:
            yield from _ends(matched, where, name, kind, (here, there))
        speeds = [_measured(own, kind) for own in (here, there)]
        yield from fact(
            where, name, f"{kind}-speed", *speeds, tolerance=0.02, shown=lambda gbs: f"{gbs:g} GB/s"
        )


def _ends(
    matched: Matched, where: str, name: str, kind: str, own: tuple[list[FabricLink], list[FabricLink]]
) -> Iterator[Difference]:
    """Yield a difference if the number of links is the same but they lead to other GPUs."""
    now = {one.bus_id: other.bus_id for one, other in matched.gpus.both}
    labels = {other.bus_id: label(other) for other in matched.found.gpus}
    before, after = (Counter[str](), Counter[str]())
    for links_, count, names in ((own[0], before, now), (own[1], after, {})):
        for link in links_:
            if link.kind == kind and link.target_kind == "gpu" and link.state != "down":
                count[names.get(link.target, link.target)] += link.count
    other = [target for target in {**before, **after} if before[target] != after[target]]
    if other and before and after:
        words = [
            ", ".join(f"{count[target]} to {labels.get(target, target)}" for target in other if count[target])
            for count in (before, after)
        ]
        lead = f"expected {words[0] or 'none'}, found {words[1] or 'none'}"
        text = f"{name}: its {_NAMES[kind]} lead elsewhere: {lead}"
        yield Difference(f"{kind}-peers", "warning", where, text, *words)


def _links_of(gpu: Gpu, host: Host) -> list[FabricLink]:
    return [link for link in host.fabric if link.source == gpu.bus_id]


def _count(own: Iterable[FabricLink], kind: str) -> int:
    return sum(link.count for link in own if link.kind == kind and link.state != "down")


def _measured(own: Iterable[FabricLink], kind: str) -> float | None:
    """Return the GB/s of one link that a driver reported; values from tables do not count."""
    rates = (link.gbs for link in own if link.kind == kind and link.method_of.get("gbs") != "table")
    return next((gbs for gbs in rates if gbs), None)


def _switches(matched: Matched) -> Iterator[Difference]:
    """Yield devices whose PCIe switch neighbours changed: few that explain all pairs, chosen greedily."""
    if flat(matched.reference) or flat(matched.found):
        return
    devices, now = functions(matched.reference), functions(matched.found)
    both: list[tuple[Gpu | Nic, Gpu | Nic]] = [*matched.gpus.both, *matched.nics.both]
    # Pairs that share a switch on one side only: True if they share it now.
    changed: dict[tuple[int, int], bool] = {}
    for (i, (a, a_now)), (j, (b, b_now)) in combinations(enumerate(both), 2):
        before, after = _share(a, b, devices), _share(a_now, b_now, now)
        if before is not None and after is not None and before != after:
            changed[i, j] = after
    while changed:
        (worst, _), *_rest = Counter(end for pair in changed for end in pair).most_common(1)
        mine = {pair: now_shared for pair, now_shared in changed.items() if worst in pair}
        changed = {pair: now_shared for pair, now_shared in changed.items() if worst not in pair}
        others = [(both[sum(pair) - worst][1], now_shared) for pair, now_shared in mine.items()]
        yield _moved(matched, both[worst][1], others)


def _share(a: Gpu | Nic, b: Gpu | Nic, devices: Mapping[str, PciDevice]) -> bool | None:
    """Return whether both have the same nearest switch; None if the tree does not hold both.

    A root port above two functions of a card is no switch, because NCCL's files omit it.
    """
    above = [_wires(device.bus_id, devices) for device in (a, b)]
    if not all(above):
        return None
    nearest = [[bridge.bus_id for bridge in wires[1:2]] for wires in above]
    return nearest[0] == nearest[1] != []


def _moved(matched: Matched, device: Gpu | Nic, others: Iterable[tuple[Gpu | Nic, bool]]) -> Difference:
    shared: tuple[list[str], list[str]] = ([], [])
    for other, now_shared in others:
        shared[now_shared].append(label(other))
    words = [", ".join(names) for names in shared]
    said = [f"no longer with {words[0]}" if words[0] else "", f"now with {words[1]}" if words[1] else ""]
    text = f"{label(device)}: on another PCIe switch: {', '.join(word for word in said if word)}"
    return Difference("switch-moved", "warning", place(matched.found, device), text, *words)
