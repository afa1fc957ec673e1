"""A schedule of any kind as text: its properties and quality, the use of ranks and links, its sends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ccctl import console
from ccctl.render import Column, about, bars, figures, percent, print_table, race_lines, seconds
from probes.base import plural

if TYPE_CHECKING:
    from probes.base import Floats, Indices
    from synth.schedules import AnySchedule, Bound, PeriodicSchedule, Schedule, SymmetricSchedule, Timing

__all__ = ["draw", "draw_limits", "limit", "limits", "optimality"]

_SLOTS = 64
# A link or port limits a schedule if it is busy for more than this share of the time; if none is, the longest
# chain of sends does. Beyond 90 %, a plan that spreads the load better gains a tenth at most.
_FULL = 0.9
# A link or port counts as equally busy if its share is this close to the busiest one's share.
_AS_BUSY = 0.01
# If bytes move along the longest chain of sends for less than this share of the time, latency limits it.
_MOSTLY_LATENCY = 0.5
# Longer tables of sends are not searched for their critical path, which takes sends times its length.
_MOST_SEARCHED = 200_000


def draw(schedule: AnySchedule, lines: int = 32, *, proven: bool = True) -> None:
    """Print a schedule, timed on its own network; at most ``lines`` ranks and sends.

    A schedule that is not ``proven`` is printed without times, as they could be wrong.
    """
    from synth.simulation import simulated

    properties, use = _BY_KIND[schedule.kind]
    timing = simulated(schedule) if proven else None
    for line in (*_head(schedule), *properties(schedule)):
        console.data(line)
    if timing is not None:
        for line in _quality(schedule, timing):
            console.data(line)
        if sentence := limit(schedule, timing):
            console.data(sentence)
        if timing.time_s and schedule.sends:
            use(schedule, timing, lines)
    _sends(schedule, timing, lines)


def _head(schedule: AnySchedule) -> Iterator[str]:
    from ccctl.render.text import utilization as busy

    network, shape = schedule.network, schedule.whole
    yield (
        f"{shape.label} on {shape.ranks_in_words}: {about(shape.total_bytes(schedule.chunk_bytes))} in "
        f"{plural(shape.chunks, 'chunk')} of {about(schedule.chunk_bytes)}"
    )
    ports = len(network.ports) * getattr(network, "translations", 1)
    links = "pairs of ranks, over" if ports and busy.is_behind_ports(network) else "links,"
    yield f"network  {network.name}: {network.links} {links} {ports} shared ports"
    yield f"method   {schedule.method}" + (f", seed {schedule.seed}" if schedule.seed else "")


def _quality(schedule: AnySchedule, timing: Timing) -> Iterator[str]:
    facts, outcome = schedule.facts, schedule.outcome
    repeated = ""
    if "period_s" in facts:
        each = seconds(facts["latency_s"])
        repeated = f": a period every {seconds(facts['period_s'])}, each {each} long"
    yield f"time     {seconds(timing.time_s)}{repeated}"
    if outcome is not None and outcome.bounds:
        bound = outcome.binding
        yield (
            f"bound    {seconds(bound.time_s)} ({bound.told}), {outcome.percent_of_optimal:.1f} % of optimal"
        )
    if schedule.race is not None:
        yield from race_lines(schedule.race)


def limits(schedule: AnySchedule) -> dict[str, Any]:
    """Return time, bound and what limits a schedule, as ``explain --json`` prints them."""
    from synth.bounds import schedule_bounds
    from synth.simulation import simulated

    timing = simulated(schedule)
    bound = schedule_bounds(schedule)[0]
    return optimality(timing.time_s, bound) | {
        "limited_by": limit(schedule, timing) or f"limited by {bound.name} {bound.detail}".rstrip(),
    }


def optimality(time_s: float, bound: Bound) -> dict[str, Any]:
    """Return a time and its distance to a bound, as ``--json`` prints them."""
    from synth.schedules import Outcome

    names = "time_s bound_s=binding.time_s binding_bound=binding.name binding_detail=binding.detail"
    return figures(Outcome(time_s, (bound,)), f"{names} percent_of_optimal")


def draw_limits(schedule: AnySchedule) -> None:
    """Print why a schedule is not faster: its distance to the bound, and what its sends wait for."""
    result = limits(schedule)
    console.data(
        f"{schedule.whole.label} on {schedule.network.name}: {seconds(result['time_s'])}, "
        f"{result['percent_of_optimal']:.1f} % of optimal, bound: {seconds(result['bound_s'])} "
        f"({': '.join(filter(None, (result['binding_bound'], result['binding_detail'])))})"
    )
    console.data(result["limited_by"])


def limit(schedule: AnySchedule, timing: Timing) -> str:
    """Return in a sentence why a schedule is not faster: full links or ports, latency, or waits.

    The sentence is "" for a schedule that is not listed, or that sends nothing.
    """
    from ccctl.render.text import utilization as busy
    from synth.simulation import critical_path, utilization

    if schedule.kind != "schedule" or not schedule.sends or not timing.time_s:
        return ""
    listed = schedule.expanded()
    shares = busy.busiest(listed.network, utilization(listed, timing))
    name, most = shares[0]
    if most >= _FULL:
        full = [one for one, share in shares if share >= most - _AS_BUSY]
        names, several = busy.in_words(listed.network, full)
        return (
            f"limited by {names}: busy {percent(most)} of the time, so only a plan that moves fewer "
            f"bytes through {'them' if several else 'it'} is faster"
        )
    least = f"the busiest, {busy.in_words(listed.network, [name])[0]}, is busy {percent(most)} of the time"
    path = critical_path(listed, timing) if schedule.sends <= _MOST_SEARCHED else []
    if not path:
        return f"limited by sends that wait for each other: {least}"
    network, link = listed.network, listed.link[path]
    moved_s = float((network.beta_s_per_byte[link] * listed.chunk_bytes).sum())
    moving = min(1.0, moved_s / timing.time_s)
    if moving < _MOSTLY_LATENCY:
        return (
            f"limited by latency: along the longest chain of sends bytes move for {percent(moving)} of the "
            f"time; {least}, so more bandwidth would hardly help"
        )
    return (
        f"limited by sends that wait for each other: along the longest chain of sends bytes move for "
        f"{percent(moving)} of the time, the rest is latency; {least}"
    )


def _listed(schedule: Schedule) -> Iterator[str]:
    reduces = int((schedule.op != 0).sum())
    streams = plural(int(schedule.stream.max(initial=-1)) + 1, "stream")
    beside = f", in {streams} that share links and ports" if len(schedule.stream) else ""
    yield f"sends    {schedule.sends}: {reduces} reduce, {schedule.sends - reduces} copy{beside}"


def _period(schedule: PeriodicSchedule) -> Iterator[str]:
    chunks = plural(schedule.collective.chunks, "chunk")
    repeated = plural(schedule.periods, "time")
    yield f"period   {plural(len(schedule.chunk), 'send')} of {chunks}, repeated {repeated}"


def _orbits(schedule: SymmetricSchedule) -> Iterator[str]:
    network = schedule.network
    digits = "x".join(
        f"{size}*" if axis in network.axes else str(size) for axis, size in enumerate(network.sizes)
    )
    yield (
        f"listed   {plural(len(schedule.chunk), 'send')}, each for {network.translations} by "
        f"renumbering ranks: with the rank as digits {digits}, those with * are shifted"
    )


def _use_of_ranks(schedule: Schedule, timing: Timing, lines: int) -> None:
    from ccctl.render.text import utilization as busy
    from synth.simulation import utilization
    from synth.streams import divided

    apart = divided(schedule)
    _timeline(apart, timing, lines)
    on = apart.network
    if busy.is_behind_ports(on):
        (row, entry), name, count = (
            (on.ports_along(apart.link)[0], on.port_entries(apart.link)),
            "ports",
            len(on.ports),
        )
        start_s, held_s = timing.start_s[row], on.port_hold_s(apart.chunk_bytes)[entry]
    else:
        name, count = "links", on.links
        start_s, held_s = timing.start_s, on.hold_s(apart.chunk_bytes)[apart.link]
    share = busy.over_time(start_s, start_s + held_s, timing.time_s, _SLOTS, count)
    console.data(f"{name:<9}{bars(share)}")
    console.data(f"         the share of {name} that are busy, over time: at most {percent(share.max())}")
    busy.draw(schedule.network, utilization(schedule, timing))


def _use_of_links(schedule: PeriodicSchedule, timing: Timing, _: int) -> None:
    from ccctl.render.text import utilization

    utilization.draw(schedule.network, schedule.busy_s / timing.time_s)


def _use_of_orbits(schedule: SymmetricSchedule, timing: Timing, _: int) -> None:
    busy = schedule.busy_s / timing.time_s
    console.data(
        f"busy     a link or port {percent(float(busy.mean()))} of the time on average, the "
        f"busiest {percent(float(busy.max()))}"
    )


_BY_KIND: dict[str, tuple[Callable[[Any], Iterator[str]], Callable[[Any, Timing, int], None]]] = {
    "schedule": (_listed, _use_of_ranks),
    "periodic": (_period, _use_of_links),
    "symmetric": (_orbits, _use_of_orbits),
}


def _timeline(schedule: Schedule, timing: Timing, lines: int) -> None:
    import numpy as np

    network = schedule.network
    held_s = network.hold_s(schedule.chunk_bytes)[schedule.link]
    first = _slot(timing.start_s, timing.time_s)
    last = _slot(timing.start_s + held_s, timing.time_s)
    doing = np.zeros((network.ranks, _SLOTS), dtype=np.int8)
    for rows, bit in ((network.src[schedule.link], 1), (network.dst[schedule.link], 2)):
        for rank, begin, end in zip(rows, first, last, strict=True):
            doing[rank, begin : end + 1] |= bit
    console.data("")
    console.data(f"time     0 to {seconds(timing.time_s)}; s sends, r receives, # both, . idle")
    for rank in range(min(lines, network.ranks)):
        console.data(f"rank {rank:<4}{''.join('.sr#'[state] for state in doing[rank])}")
    _tell_rest(network.ranks, lines, "ranks")


def _slot(moment_s: Floats, total_s: float) -> list[int]:
    import numpy as np

    finite = np.nan_to_num(moment_s / total_s * _SLOTS, posinf=_SLOTS)
    # A send that ends at the border of a slot does not occupy the next slot.
    found: list[int] = np.clip(np.ceil(finite - 1e-9) - 1, 0, _SLOTS - 1).astype(int).tolist()
    return found


def _sends(schedule: Any, timing: Timing | None, lines: int) -> None:
    """Print the first ``lines`` sends: chunk, source, destination, and whether it is reduced."""

    def time_us(column: str) -> Callable[[int], float | None]:
        return lambda row: None if timing is None else float(getattr(timing, column)[row] * 1e6)

    src, dst = _ends(schedule, lines)
    columns = (
        Column("send", int),
        Column("start (us)", time_us("start_s"), "{:.3f}"),
        Column("arrival (us)", time_us("arrival_s"), "{:.3f}"),
        Column("chunk", schedule.chunk.__getitem__),
        Column("link", lambda row: f"{src[row]} -> {dst[row]}"),
        Column("op", lambda row: "reduce" if schedule.op[row] else "copy"),
    )
    count = len(schedule.chunk)
    console.data("")
    print_table(columns, range(min(lines, count)))
    _tell_rest(count, lines, "sends")


def _ends(schedule: Any, lines: int) -> Sequence[Indices]:
    """Return the source and the destination of the first ``lines`` sends."""
    network, link = schedule.network, schedule.link[:lines]
    ends = network.src[link], network.dst[link]
    if schedule.kind == "symmetric":
        return [network.moved(end, schedule.shift[:lines]) for end in ends]
    return ends


def _tell_rest(total: int, shown: int, what: str) -> None:
    """Print how many of ``total`` were not shown, and the option that shows them."""
    if total > shown:
        console.data(f"… and {total - shown} more {what}; --lines {total} shows all")
