"""Subsets of ranks, failed ranks, relays, and several collectives at once, for every method.

A method plans one collective over all ranks of a network. For a subset, the method runs on the network of the
members alone and, if it can relay, also on the network of the members and all ranks between them. The faster
schedule is kept, without sends that serve nobody. Several collectives at once are planned one by one, then
their sends are merged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from probes.base import Floats, Indices, UsageError, ints
from synth.collective import Collective
from synth.errors import NotApplicableError
from synth.network import Network
from synth.networks import reachable, renumbered, restricted
from synth.schedules import Schedule
from synth.scheduling import Sends, pruned
from synth.simulation import replay

__all__ = ["on_whole_network", "serve"]

# Collectives that cut the buffer into the same chunks whichever ranks take part.
_ALIKE = ("all_reduce", "broadcast", "reduce")
Synthesizer = Callable[..., Schedule]


def serve(
    synthesize: Synthesizer,
    network: Network,
    collective: Collective,
    chunk_bytes: int,
    *,
    relays: bool = False,
    others: Sequence[Synthesizer] = (),
    **options: Any,
) -> Schedule:
    """Return the method's schedule, also for subsets and several collectives that it cannot plan itself.

    ``relays``: the method serves subsets and custom collectives itself. Of several collectives at once,
    ``others`` serve what the method does not serve. Raises NotApplicableError or UsageError as the method
    does.
    """
    if collective.parts:
        return _at_once((synthesize, *others), network, collective, chunk_bytes, relays, options)
    among = reachable(network, collective)
    if _nothing_moves(collective):
        return Sends().schedule(network, collective, chunk_bytes, "none", options.get("seed", 0))
    if len(among) < network.ranks:
        inner, rows = restricted(network, among)
        found = serve(
            synthesize,
            inner,
            renumbered(collective, among),
            chunk_bytes,
            relays=relays,
            others=others,
            **options,
        )
        return on_whole_network(found, network, collective, rows)
    if collective.whole or collective.kind == "custom":
        return synthesize(network, collective, chunk_bytes, **options)
    return _on_members(synthesize, network, collective, chunk_bytes, relays, options)


def _nothing_moves(collective: Collective) -> bool:
    """Return whether every rank already holds the chunks that it wants."""
    sources, targets = collective.sources, collective.targets
    keys = np.stack((sources.group, targets.group, collective.reduced), axis=1)
    for chunk in np.unique(keys, axis=0, return_index=True)[1].tolist():
        held = sources.of(chunk)
        if (collective.reduced[chunk] and len(held) > 1) or not np.isin(targets.of(chunk), held).all():
            return False
    return True


def _on_members(
    synthesize: Synthesizer,
    network: Network,
    collective: Collective,
    chunk_bytes: int,
    relays: bool,
    options: dict[str, Any],
) -> Schedule:
    """Return the fastest of: a schedule among the members alone, one through relays, one for all ranks.

    A schedule for all ranks serves the members, too: the other ranks only forward, and add nothing to sums.
    """
    members = collective.participants
    alone, rows = restricted(network, members)
    found: list[Schedule] = []
    refusals: list[NotApplicableError | UsageError] = []
    try:
        if not alone.links:
            raise NotApplicableError(f"the ranks that take part have no links on {network.name}")
        inner = synthesize(alone, renumbered(collective, members), chunk_bytes, **options)
        found.append(_without_bounds(on_whole_network(inner, network, collective, rows)))
    except (NotApplicableError, UsageError) as error:
        refusals.append(error)
    if relays or collective.kind in _ALIKE:
        shape = collective if relays else replace(collective, members=())
        try:
            through = synthesize(network, shape, chunk_bytes, **options)
            # In an exchange, a send may name its source's own contribution as an addend, and a switch reads
            # that of each rank. Ranks outside the subset have no contribution, so only methods that plan for
            # subsets make valid schedules of these.
            if relays or not (through.exchanges or through.uses_switches):
                useful = pruned(replace(through, collective=collective))
                found.append(useful if relays else _without_bounds(useful))
        except (NotApplicableError, UsageError) as error:
            refusals.append(error)
    if not found:
        raise NotApplicableError(refusals[0].message)
    return min(found, key=lambda schedule: replay(schedule).time_s)


def _at_once(
    methods: Sequence[Synthesizer],
    network: Network,
    collective: Collective,
    chunk_bytes: int,
    relays: bool,
    options: dict[str, Any],
) -> Schedule:
    """Return the faster of two: each part planned as if alone, or around the load of earlier parts."""
    found = [
        _together(methods, network, collective, chunk_bytes, relays, options, around=around)
        for around in (False, True)
    ]
    return min(found, key=lambda schedule: replay(schedule).time_s)


def _together(
    methods: Sequence[Synthesizer],
    network: Network,
    collective: Collective,
    chunk_bytes: int,
    relays: bool,
    options: dict[str, Any],
    *,
    around: bool,
) -> Schedule:
    """Return the sends of all parts, merged by their start times when each part runs alone.

    Parts are shifted to end together, so longer ones start first. Each part is planned by the first of
    ``methods`` that serves it. Raises NotApplicableError if ``methods[0]`` serves no part. ``around``: plan
    each part on a network that the load of earlier parts slows.
    """
    sends, names = Sends(), []
    offset, first_serves = 0, False
    alone: list[tuple[Schedule, Floats]] = []
    held_s = np.zeros(network.links + len(network.ports))
    for part in collective.parts:
        # The most loaded link or port takes twice the time per byte.
        seen = network.slowed(held_s / (held_s.max(initial=0.0) or 1.0)) if around else network
        at, schedule = _first(methods, seen, part, chunk_bytes, relays, options)
        first_serves = first_serves or at == 0
        schedule = replace(schedule, network=network)
        alone.append((schedule, replay(schedule).start_s))
        names.append(schedule.method)
        held_s += network.busy_s(schedule.link, chunk_bytes)
    if not first_serves:
        raise NotApplicableError(f"the method serves none of {collective.label}")
    longest_s = max(float(start_s.max(initial=0.0)) for _, start_s in alone)
    for schedule, start_s in alone:
        late_s = longest_s - float(start_s.max(initial=0.0))
        turn = np.arange(schedule.sends)
        sends.add(schedule.chunk + offset, schedule.link, schedule.op, turn, start_s + late_s)
        offset += schedule.collective.chunks
    name = " + ".join(dict.fromkeys(names))
    return sends.schedule(network, collective, chunk_bytes, name, options.get("seed", 0))


def _first(
    methods: Sequence[Synthesizer],
    network: Network,
    part: Collective,
    chunk_bytes: int,
    relays: bool,
    options: dict[str, Any],
) -> tuple[int, Schedule]:
    refusals: list[NotApplicableError] = []
    for at, method in enumerate(methods):
        own = options if at == 0 else {"seed": options.get("seed", 0)}
        try:
            found = serve(method, network, part, chunk_bytes, relays=relays or at > 0, **own)
            if found.exchanges or found.uses_switches:
                raise NotApplicableError(f"{found.method} does not serve several collectives at once")
            return at, found
        except NotApplicableError as error:
            refusals.append(error)
    raise refusals[0]


def _without_bounds(found: Schedule) -> Schedule:
    """Return the schedule without bounds, because bounds among members alone do not hold with relays."""
    return replace(found, outcome=found.outcome and replace(found.outcome, bounds=()))


def on_whole_network(found: Schedule, network: Network, collective: Collective, rows: Indices) -> Schedule:
    """Return a schedule on part of a network as one on the whole; ``rows`` maps its links."""
    return replace(found, network=network, collective=collective, link=ints(rows[found.link]))
