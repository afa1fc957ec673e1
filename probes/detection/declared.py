"""Reconciliation of a declared topology with a profile: contradicted edges and their corrections.

A pair of GPUs contradicts the topology if the whole confidence interval of its GB/s lies outside the
tolerance of its path. The tolerance is a factor of 1.5 to 2 over NVLink and PCIe switches, and of 2 to 3
through CPUs. The misfit is the sum of |log(measured / expected)| beyond the tolerance. Each round tries
candidate edits (`host_edits`) and keeps the one with the least misfit, until none explains more. Then the
speeds of NICs are compared with rates between hosts (`nic_speeds`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from probes.detection.host_edits import Edit, GpuPair, candidate_edits
from probes.detection.nic_speeds import NicSpeeds
from probes.link_costs import Profile
from probes.paths import Bandwidths, Expected, MeasuredPair, host_named, load, measured_pairs
from probes.topology import Finding, Host, Topology, label

__all__ = ["Reconciled", "reconcile"]

# Least and greatest ratio of measured to expected GB/s for a correctly declared path.
_FABRIC, _SWITCHES, _CPUS = (0.65, 1.5), (0.55, 1.5), (0.3, 2.0)
# An edit must reduce the misfit by at least this much.
_LEAST = 0.1
_MOST_EDITS = 32


@dataclass(frozen=True)
class Reconciled:
    """The corrected topology, its edits in order, and pairs that still contradict it.

    ``pairs`` is the number of measured pairs that were compared.
    """

    topology: Topology
    edits: tuple[Edit, ...]
    unexplained: tuple[Finding, ...]
    pairs: int

    @property
    def findings(self) -> tuple[Finding, ...]:
        return (*(edit.finding for edit in self.edits), *self.unexplained)


def reconcile(declared: Topology, profile: Profile) -> Reconciled:
    """Correct ``declared`` by measured pairs: of GPUs within hosts, and of NICs between hosts."""
    tables = load()
    pairs = list(measured_pairs(declared, profile))
    hosts, edits, unexplained = list(declared.hosts), list[Edit](), list[Finding]()
    compared = 0
    for at, host in enumerate(hosts):
        inside = [pair for pair in pairs if _inside(declared, host, pair)]
        compared += len(inside)
        hosts[at], found, left = _corrected(host, inside, tables)
        edits += found
        unexplained += left
    across = [pair for pair in pairs if pair.src.host != pair.dst.host]
    speeds = NicSpeeds(replace(declared, hosts=tuple(hosts)), across)
    topology, found, left = speeds.corrected()
    return Reconciled(topology, (*edits, *found), (*unexplained, *left), compared + speeds.compared)


def _inside(topology: Topology, host: Host, pair: MeasuredPair) -> bool:
    return (
        pair.src.host == pair.dst.host
        and None not in (pair.src_gpu, pair.dst_gpu)
        and host_named(topology, pair.src.host) is host
    )


def _corrected(
    host: Host, measured: Sequence[MeasuredPair], tables: Bandwidths
) -> tuple[Host, list[Edit], list[Finding]]:
    """Return (the corrected host, its edits, remaining contradictions); greedy, one edit at a time."""
    pairs = [
        GpuPair(pair.src_gpu.bus_id, pair.dst_gpu.bus_id, pair.gbs, pair.low_gbs, pair.high_gbs)
        for pair in measured
        if pair.src_gpu is not None and pair.dst_gpu is not None
    ]
    edits: list[Edit] = []
    misfit = _misfit(host, pairs, tables)
    while misfit and len(edits) < _MOST_EDITS:
        best: tuple[float, Edit] | None = None
        for edit in candidate_edits(host, list(misfit), pairs, tables):
            left = sum(_misfit(edit.after, pairs, tables).values())
            if best is None or left < best[0] - 1e-9:
                best = (left, edit)
        if best is None or best[0] > sum(misfit.values()) - _LEAST:
            break
        edits.append(best[1])
        host = best[1].after
        misfit = _misfit(host, pairs, tables)
    left_over = [_pair_finding(host, pair, tables) for pair in misfit]
    return host, edits, left_over


def _misfit(host: Host, pairs: Iterable[GpuPair], tables: Bandwidths) -> dict[GpuPair, float]:
    """Return the misfit of each contradicting pair: |log(measured / expected)| beyond the tolerance."""
    expected, gpus = Expected(host, tables), {gpu.bus_id: gpu for gpu in host.gpus}
    found = {}
    for pair in pairs:
        way = expected.between(gpus[pair.src], gpus[pair.dst])
        if way.gbs is None:
            continue
        low, high = _allowed(way.path)
        if pair.high < low * way.gbs:
            found[pair] = math.log(low * way.gbs / pair.gbs)
        elif pair.low > high * way.gbs:
            found[pair] = math.log(pair.gbs / (high * way.gbs))
    return found


def _allowed(path: str) -> tuple[float, float]:
    """Return the tolerance of a path: least and greatest ratio of measured to expected GB/s."""
    if path == "NVB":
        # A copy goes over PCIe, unless a library relays it through a third GPU.
        return 0.0, _FABRIC[1]
    if path in ("NVL", "C2C"):
        return _FABRIC
    return _SWITCHES if path in ("PIX", "PXB") else _CPUS


def _pair_finding(host: Host, pair: GpuPair, tables: Bandwidths) -> Finding:
    gpus = {gpu.bus_id: gpu for gpu in host.gpus}
    a, b = gpus[pair.src], gpus[pair.dst]
    way = Expected(host, tables).between(a, b)
    should = f"{way.path} should carry {way.gbs:.3g} GB/s"
    text = f"to {label(b)}: {should}, measured {pair.gbs:.3g}; no edit explains it"
    return Finding("declared-pair", f"{host.name}/{label(a)}", text)
