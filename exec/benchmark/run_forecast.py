"""The forecast of a run: the proven bound, and the parts of the predicted time."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from exec.benchmark.breakdown import Forecast, PartKind, link_name, parts_of
from synth.bounds import bounds
from synth.network import Network
from synth.prediction import prediction
from synth.program import Program
from synth.simulation import CAUSES, ProgramTiming, simulate_program

__all__ = ["forecast"]


def forecast(program: Program, network: Network, chunk_bytes: int) -> Forecast:
    """Return the prediction of ``synth.prediction.run_time`` for a program on ``network``, part by part.

    Raises UsageError if the network lacks a rank or a link of the program.
    """
    chunk_bytes = max(1, chunk_bytes)
    found = prediction(program, network, chunk_bytes)
    bare = replace(found.costs, step_s=0.0)
    schedule_s = simulate_program(program, network, chunk_bytes, bare).time_s
    stepped_s = simulate_program(program, network, chunk_bytes, found.costs).time_s
    bound = bounds(network, program.collective, chunk_bytes, fluid=True)[0]
    spent = _critical_path(found.in_turn, network)
    if found.on_host:
        names = {key: "every rank" if key[0] == "step" else f"rank {key[1]}" for key in found.on_host.spent}
        spent = defaultdict(float)
        for key, value in found.on_host.spent.items():
            spent[key[0], names[key]] += value
    elif found.sharing_s:
        # Within a host, transfers share its memory and its cores, not ports.
        kind: PartKind = "port" if len(set(network.hosts)) > 1 else "memory"
        spent[kind, "shared by transfers"] += found.sharing_s
    return Forecast(
        network=network.name,
        bound=bound.name,
        bound_s=bound.time_s,
        schedule_s=schedule_s,
        steps_s=stepped_s - schedule_s,
        sharing_s=found.sharing_s,
        memory_s=found.time_s - stepped_s - found.sharing_s,
        parts=parts_of(spent),
    )


def _critical_path(timing: ProgramTiming, network: Network) -> defaultdict[tuple[PartKind, str], float]:
    """Return the seconds of the critical path in the simulation, by kind and place."""
    spent: defaultdict[tuple[PartKind, str], float] = defaultdict(float)
    if not len(timing.end_s) or timing.time_s == float("inf"):
        return spent
    step, until_s, why, waiting = int(timing.end_s.argmax()), timing.time_s, "order", -1
    while step >= 0:
        begin_s, link = float(timing.start_s[step]), int(timing.link[step])
        carried_s = float(timing.wire_s[step])
        if why == "message" and not network.hold_alpha:
            carried_s += float(network.alpha_s[link])
        carried_s = min(carried_s, until_s - begin_s)
        if carried_s:
            spent[_carried(network, link, waiting if why == "link" else link)] += carried_s
        spent["step", "every rank"] += until_s - begin_s - carried_s
        waiting, until_s, why, step = link, begin_s, CAUSES[timing.cause[step]], int(timing.culprit[step])
    return spent


def _carried(network: Network, link: int, waiting: int) -> tuple[PartKind, str]:
    """Return the kind and place of the time in which ``link`` carries and ``waiting`` waits."""
    source, target = int(network.src[link]), int(network.dst[link])
    if network.hosts[source] == network.hosts[target]:
        return "memory", f"rank {target}"
    if waiting != link:
        shared = [port for port in network.ports_of(link).tolist() if port in network.ports_of(waiting)]
        return "port", network.ports[shared[0]] if shared else "shared by transfers"
    return "link", link_name(source, target)
