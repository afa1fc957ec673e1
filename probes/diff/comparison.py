"""Comparison of two machines: missing, slower and moved devices.

Only facts that both sides state are compared: a file with PCI functions alone says nothing about NVLinks, and
NCCL's files list only the ports that NCCL would use. The link of an idle GPU at its lowest speed is no
difference. Devices are matched by identity and bus id, or by model and position if buses were renumbered.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from probes.diff.facts import facts
from probes.diff.links import links
from probes.diff.matching import Matched, Pairs, matchings, model
from probes.diff.model import Difference
from probes.paths import flat
from probes.topology import Gpu, Host, Nic, Topology, label, place

__all__ = ["Comparison", "compare", "compare_hosts"]

_GRAVITY = {"critical": 0, "warning": 1, "info": 2}


@dataclass(frozen=True)
class Comparison:
    """The differences, most severe first, and notes that are no differences."""

    differences: tuple[Difference, ...]
    notes: tuple[str, ...] = ()


def compare(reference: Topology, found: Topology) -> Comparison:
    """Return the differences of ``found`` from ``reference``.

    A single machine on either side is compared with each machine of the other side. Otherwise machines are
    compared by name.
    """
    done = [compare_hosts(one, other) for one, other in _same_hosts(reference, found)]
    differences = [*_hosts_apart(reference, found), *(d for one in done for d in one.differences)]
    ordered = sorted(differences, key=lambda difference: _GRAVITY[difference.severity])
    return Comparison(tuple(ordered), tuple(note for one in done for note in one.notes))


def compare_hosts(reference: Host, found: Host) -> Comparison:
    """Compare two machines, with the matching of devices that gives the fewest differences."""
    tries = [_compared(matched) for matched in matchings(reference, found)]
    return min(tries, key=lambda one: len(one.differences))


def _compared(matched: Matched) -> Comparison:
    lacking = [*_gpus_apart(matched), *_nics_apart(matched)]
    return Comparison((*lacking, *facts(matched), *links(matched)), tuple(_notes(matched)))


def _same_hosts(reference: Topology, found: Topology) -> Iterator[tuple[Host, Host]]:
    if 1 in (len(reference.hosts), len(found.hosts)):
        yield from ((one, other) for one in reference.hosts for other in found.hosts)
        return
    by_name = {host.name: host for host in found.hosts}
    yield from ((one, by_name[one.name]) for one in reference.hosts if one.name in by_name)


def _hosts_apart(reference: Topology, found: Topology) -> Iterator[Difference]:
    if 1 in (len(reference.hosts), len(found.hosts)):
        return
    here, there = ([host.name for host in one.hosts] for one in (reference, found))
    for name in (name for name in here if name not in there):
        yield Difference("missing-host", "critical", name, f"{name} is missing", name, "")
    for name in (name for name in there if name not in here):
        yield Difference("extra-host", "info", name, f"{name} is not expected", "", name)


def _gpus_apart(matched: Matched) -> Iterator[Difference]:
    replaced = {gpu.bus_id: gpu for gpu in matched.gpus.extra}
    for gpu in matched.gpus.missing:
        where = f"{matched.found.name}/{gpu.bus_id}"
        other = replaced.pop(gpu.bus_id, None)
        if other is None:
            text = f"{label(gpu)}{_model(gpu.name)} is missing"
            yield Difference("missing-gpu", "critical", where, text, gpu.name or gpu.bus_id, "")
        else:
            words = (_called(gpu, matched.reference), _called(other, matched.found))
            text = f"{label(other)}: another model: expected {words[0]}, found {words[1]}"
            yield Difference("gpu-model", "warning", where, text, *words)
    for gpu in replaced.values():
        text = f"{label(gpu)}{_model(gpu.name)} is not expected"
        yield Difference("extra-gpu", "info", place(matched.found, gpu), text, "", gpu.name or gpu.bus_id)


def _called(gpu: Gpu, host: Host) -> str:
    return gpu.name or next(filter(None, model(gpu, host)), gpu.bus_id)


def _nics_apart(matched: Matched) -> Iterator[Difference]:
    for nic in _lacking(matched.nics, reference=True, unused=matched.found.method == "nccl_xml"):
        where = f"{matched.found.name}/{nic.name}"
        yield Difference("missing-nic", "critical", where, f"{label(nic)} is missing", nic.name, "")
    for nic in _lacking(matched.nics, reference=False, unused=matched.reference.method == "nccl_xml"):
        where = place(matched.found, nic)
        yield Difference("extra-nic", "info", where, f"{label(nic)} is not expected", "", nic.name)


def _lacking(nics: Pairs[Nic], *, reference: bool, unused: bool) -> Iterator[Nic]:
    """Yield ports without a partner, except those that the other side may have without listing them."""
    # If a side knows a card's PCI function but not its ports, the function matches all ports of the card.
    whole = {
        (one if reference else other).bus_id
        for one, other in nics.both
        if (other if reference else one).name == (other if reference else one).bus_id
    }
    for nic in nics.missing if reference else nics.extra:
        if nic.bus_id not in whole and not (unused and _not_for_nccl(nic, nics, reference)):
            yield nic


def _not_for_nccl(nic: Nic, nics: Pairs[Nic], reference: bool) -> bool:
    """Return whether NCCL would ignore this port: no RDMA, or Ethernet beside InfiniBand."""
    layers = {(one if reference else other).link_layer for one, other in nics.both}
    return nic.method != "nccl_xml" and (not nic.rdma_device or nic.link_layer not in (layers or {""}))


def _notes(matched: Matched) -> Iterator[str]:
    name = matched.found.name
    moved = [(a, b) for a, b in matched.gpus.both if a.bus_id != b.bus_id]
    moved_ports = [(a, b) for a, b in matched.nics.both if a.bus_id != b.bus_id and a.bus_id and b.bus_id]
    named = [f"{label(b)} was {a.bus_id} and is {b.bus_id}" for a, b in moved]
    named += [f"{label(d)} was {c.bus_id} and is {d.bus_id}" for c, d in moved_ports]
    if named:
        yield f"{name}: bus ids differ, so devices are matched by model and position: {'; '.join(named)}"
    without_bridges = [host.name for host in (matched.reference, matched.found) if flat(host)]
    if len(without_bridges) == 1:
        yield f"{without_bridges[0]}: its PCI tree shows no bridges, so who shares a switch is not compared"
    unlisted = {nic.name for nic in matched.nics.extra} - {
        nic.name
        for nic in _lacking(matched.nics, reference=False, unused=matched.reference.method == "nccl_xml")
    }
    if unlisted:
        yield f"{name}: {', '.join(sorted(unlisted))}: not in NCCL's file, which lists what NCCL uses"


def _model(name: str) -> str:
    return f" ({name})" if name else ""
