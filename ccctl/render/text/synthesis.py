"""The result of ``synth``, as one object and as lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ccctl import console
from ccctl.render import Say, about, bandwidth, figures, race_lines, seconds
from ccctl.render.text import selection
from ccctl.render.text.schedule import limit
from probes.base import format_size, plural
from synth.bounds import ORDER_BOUND

if TYPE_CHECKING:
    from synth import Synthesis
    from synth.collective import Collective
    from synth.nccl_tuning import SizeChoice
    from synth.portfolio import Loaded
    from synth.schedules import AnySchedule, Outcome

__all__ = ["METHODS", "MOST_NCCL_RANKS", "RUNTIMES", "compared", "draw", "predicted_line", "summary"]

# A smaller growth would be printed as 0.0 %.
_EXACT = 0.0005
# Direct sends whose time differs by less count as equally fast.
_NO_GAIN = 0.005
# A schedule this near to the bound is limited by what the bound names, so no other line says what limits it.
_NEAR_PERCENT = 95.0
# Linear programs of NCCL's channels take below a second up to this many ranks.
MOST_NCCL_RANKS = 128
# An all_reduce by NCCL takes no less than about this, most of it to launch a kernel and to run its steps.
_SHORT_S = 30e-6
RUNTIMES = {"msccl": "MSCCL", "rccl": "RCCL", "mscclpp": "MSCCL++"}
_SCHEDULE = "method collective=collective.label chunk_bytes sends race seed"
_OUTCOME = "time_s bound_s=binding.time_s percent_of_optimal binding_bound=binding.name status gap_percent"


def summary(found: Synthesis, seed: int) -> dict[str, Any]:
    """Return the object of ``synth --json``: plain values with units in their names."""
    schedule: Any = found.schedule
    peak_bytes = found.peak_bytes + found.workers_bytes
    if found.candidates:
        return selection.summary(schedule) | {
            "candidates": found.candidates,
            "synthesis_s": found.synthesis_s + found.proof_s,
            "peak_bytes": peak_bytes,
            "seed": seed,
        }
    return {
        **figures(schedule, _SCHEDULE),
        **figures(schedule.network, "ranks links"),
        **figures(schedule.whole, "ranks_taking_part=size chunks"),
        **figures(schedule.outcome, _OUTCOME),
        **figures(found, "synthesis_s proof_s why"),
        **{name: schedule.facts.get(name) for name in ("periods", "period_s", "translations")},
        "size_bytes": schedule.whole.total_bytes(schedule.chunk_bytes),
        "checked": True,
        **_loaded(found.loaded),
        **_in_order(found),
        "predicted_run_s": _predicted_s(schedule),
        "direct_s": _direct_s(schedule),
        "bounds_s": {bound.name: bound.time_s for bound in schedule.outcome.bounds},
        "peak_bytes": peak_bytes,
        "attempts": [figures(tried, "method chunks time_s reason") for tried in found.attempts],
    }


def draw(found: Synthesis, say: Say) -> None:
    """Print every method's best time, why the winner won, and its distance to the bound."""
    memory = f"memory at most {(found.peak_bytes + found.workers_bytes) / 1e6:.0f} MB"
    if found.candidates:
        selection.draw(found.schedule, say)  # type: ignore[arg-type] # with candidates it is a selection
        took_s = found.synthesis_s + found.proof_s
        say(f"{found.candidates} candidates timed at every size in {took_s:.1f} s, {memory}")
        return
    for line in _lines(found):
        say(line)
    say(
        f"checked independently: {found.schedule.sends} sends proven to give the right result; "
        f"synthesis took {found.synthesis_s:.2f} s, the proof {found.proof_s:.2f} s, {memory}"
    )


# Methods that solve integer programs. If another method's schedule is optimal, the programs of ilp proved it.
_SOLVING = ("ilp", "adapcc", "forest", "adapcc_published", "taccl", "tacos_ilp_published")


METHODS = {
    "demand": "direct, and through idle ranks where ports are busy",
    "bine": "binomial trees of nearer ranks, by negabinary numbers",
    "trivance": "rings or a torus, both ways at once, in steps three times as far each",
    "exchange": "near ranks exchange their sums",
    "nvls": "the switch of each host sums and copies (NVLink SHARP)",
    "aligned": "sums of a fixed tree, each on its way to the next",
    "circulant": "reduce to the slowest rank while it broadcasts what is summed",
    "stars": "each rank to its host, one link to each other host",
    "symmetric": "one chunk's sends, renumbered for all ranks",
    "greedy": "each free link takes the next chunk that is wanted",
    "gossip": "partial sums spread to any rank that lacks them",
    "mixture": "chunks by the plans of several methods, in the best shares",
    "ring": "one ring through all ranks, a single channel",
    "bidirectional": "one ring, both ways round",
    "direct": "each rank to each other rank",
    "all_pairs": "each rank to each other rank",
    "doubling": "recursive doubling",
    "halving_doubling": "recursive halving and doubling (Rabenseifner)",
    "tree": "double binary trees",
    "hierarchical": "rings inside hosts, then across hosts",
    "host_halving": "sums inside hosts, then halving and doubling across",
    "two_step": "gathered inside hosts, then across",
    "three_step": "gathered inside hosts, across, and spread again",
    "scatter_allgather": "the root scatters chunks, and each rank spreads those it got",
    "paths": "a path for each chunk, so that the busiest link carries least",
    "forest": "many spanning trees at once",
    "ilp": "integer programs over time",
    "adapcc": "trees that divide the bytes so that all finish together",
    "adapcc_published": "AdapCC as its paper has it",
    "taccl": "integer program for routes, then an order",
    "tacos_published": "TACOS as its paper has it",
    "tacos_ilp_published": "TACOS's integer programs as its paper has them",
}


def _lines(found: Synthesis) -> Iterator[str]:
    schedule: Any = found.schedule
    from synth.simulation import simulated

    outcome, shape = schedule.outcome, schedule.whole
    chunks = plural(shape.chunks, "chunk")
    yield (
        f"{shape.label} of {about(shape.total_bytes(schedule.chunk_bytes))} on {schedule.network.name}: "
        f"{shape.ranks_in_words}, {chunks} of {about(schedule.chunk_bytes)}"
    )
    verdict = "" if found.loaded is None else _loaded_verdict(found.loaded, schedule)
    if verdict:
        yield verdict
    yield from _attempts(found)
    if shape.blocks is not None:
        yield from _rounding_lines(shape, schedule.chunk_bytes)
        if (direct_s := _direct_s(schedule)) is not None:
            ratio = direct_s / outcome.time_s
            comparison = f"take {ratio:.2f} times as long" if abs(ratio - 1) >= _NO_GAIN else "are as fast"
            yield f"direct sends {comparison}: {seconds(direct_s)}"
    kept = "kept: " if found.loaded is not None and found.loaded.limit else ""
    rates = _rates(schedule, outcome.time_s)
    yield f"{kept}{schedule.method}, {chunks}: {seconds(outcome.time_s)}{rates} ({found.why})"
    predicted_s = _predicted_s(schedule)
    by_links = predicted_s is not None or (found.loaded is not None and found.loaded.time_s)
    model = " in the model of links" if by_links else ""
    yield (
        f"{outcome.percent_of_optimal:.1f} % of optimal{model}, bound: {seconds(outcome.binding.time_s)} "
        f"({outcome.binding.told})"
    )
    if outcome.percent_of_optimal < _NEAR_PERCENT and (why := limit(schedule, simulated(schedule))):
        yield why
    if not verdict:
        yield from _nccl_lines(schedule)
    if found.any_order_s:
        yield _price(found.any_order_s, outcome)
    if found.loaded is not None:
        yield from _loaded_lines(found.loaded, schedule)
    if predicted_s is not None:
        yield predicted_line(predicted_s)
    if schedule.race is not None:
        yield from race_lines(schedule.race)
    if outcome.gap is not None:
        whose = f"{schedule.method}'s" if schedule.method in _SOLVING else "the"
        ended = f"stopped within {100 * outcome.gap:.2g} % of" if outcome.gap else "solved to"
        yield f"{whose} integer programs were {ended} their optimum"
    if remark := schedule.remark(seconds):
        yield remark


def _rates(schedule: AnySchedule, time_s: float) -> str:
    """Return algbw and busbw in words, as nccl-tests defines them; "" where a collective has none."""
    from exec.benchmark import busbw_factor

    shape = schedule.whole
    if not time_s or shape.kind in ("custom", "several"):
        return ""
    algbw_gbs = shape.total_bytes(schedule.chunk_bytes) / time_s / 1e9
    busbw_gbs = algbw_gbs * busbw_factor(shape.kind, shape.size)
    return f", algbw {bandwidth(algbw_gbs)}, busbw {bandwidth(busbw_gbs)} GB/s"


def _nccl_lines(schedule: AnySchedule) -> Iterator[str]:
    """Yield NCCL's time beside a schedule; for small sizes that of NCCL's own choice, with the launch."""
    outcome: Any = schedule.outcome
    choice = _nccl_choice(schedule) if outcome.time_s < _SHORT_S else None
    if choice is not None:
        yield (
            "these times are the latency of links only, without launch; NCCL's "
            f"{choice.default} with it, by NCCL's own model: {seconds(choice.default_us / 1e6)}"
        )
    elif nccl := _nccl_line(schedule):
        yield nccl


def _nccl_line(schedule: AnySchedule) -> str:
    """Return the time of NCCL's own algorithm in the same model; "" where the model does not cover it.

    NCCL does not run between processes that share memory, nor on some of the ranks.
    """
    from synth.portfolio import nccl_time

    shape, network = schedule.whole, schedule.network
    if not schedule.is_listed or not shape.whole or network.ranks > MOST_NCCL_RANKS:
        return ""
    listed = schedule.listed_network()
    if listed.is_measured_host or shape.size < network.ranks:
        return ""
    found = nccl_time(listed, shape.kind, shape.total_bytes(schedule.chunk_bytes), shape.root)
    if found is None:
        return ""
    name, time_s = found
    called = "ring with all its channels," if name == "ring" else "direct sends"
    return f"NCCL's {called} by the same model: {seconds(time_s)}{_rates(schedule, time_s)}"


def _price(any_order_s: float, outcome: Outcome) -> str:
    """Return the price of the fixed order of sums, and the least price of any schedule in this order."""
    line = (
        f"reproducible: {outcome.time_s / any_order_s:.2f} times the time of the best schedule in any order"
    )
    ordered_s = max((bound.time_s for bound in outcome.bounds if bound.name == ORDER_BOUND), default=0.0)
    if ordered_s > any_order_s * (1 + _EXACT):
        line += f"; the order itself costs {ordered_s / any_order_s:.2f} at least on these links"
    return line


def _rounding_lines(shape: Collective, chunk_bytes: int) -> Iterator[str]:
    """Say by how much whole chunks exceed the blocks of the busiest rank, if they do."""
    grown = shape.total_bytes(chunk_bytes) / int(shape.buffer_bytes().max()) - 1
    if grown > _EXACT:
        yield (
            f"time and bound are of whole chunks: {100 * grown:.1f} % more than the busiest rank has to move"
        )


def _in_order(found: Synthesis) -> dict[str, Any]:
    if found.any_order_s is None:
        return {}
    return {"sum_order": found.schedule.whole.sum_order, "any_order_s": found.any_order_s}


def _loaded(loaded: Loaded | None) -> dict[str, Any]:
    if loaded is None:
        return {}
    return {
        "runtime": loaded.runtime,
        **figures({"program": loaded.program}, "channels=program.channels instructions=program.steps"),
        "threadblocks_max": _threadblocks(loaded),
        "operations": loaded.plan.operations if loaded.plan else None,
        "granule_bytes": loaded.granule_bytes,
        "unrestricted_percent_of_optimal": loaded.unrestricted_percent,
        "loadable_percent_of_optimal": loaded.links_percent,
        "limit": loaded.limit,
        "instances": loaded.instances,
        "runtime_s": loaded.time_s or None,
    }


def _threadblocks(loaded: Loaded) -> int:
    """Return the largest number of threadblocks of any rank in what a runtime loads."""
    made = loaded.plan or loaded.program
    return made.threadblocks_max if made is not None else 0


def _nccl_choice(schedule: AnySchedule) -> SizeChoice | None:
    """Return NCCL's own choice with its time by NCCL's model; None where that model does not cover it."""
    from exec.library_rules import nccl_choice

    shape, network = schedule.whole, schedule.network
    if not schedule.is_listed or not shape.whole or network.ranks > MOST_NCCL_RANKS:
        return None
    listed = schedule.listed_network()
    return nccl_choice(listed, shape.kind, shape.total_bytes(schedule.chunk_bytes))


def _loaded_verdict(loaded: Loaded, schedule: AnySchedule) -> str:
    """Return whether what a runtime loads is faster than stock NCCL; "" if either time is unknown."""
    choice = _nccl_choice(schedule) if loaded.time_s else None
    if choice is None:
        return ""
    return compared(loaded.runtime, loaded.time_s, choice)


def compared(runtime: str, time_s: float, choice: SizeChoice) -> str:
    """Return in a sentence how a predicted time in a runtime compares with stock NCCL."""
    nccl_s = choice.default_us / 1e6
    both = (
        f"predicted {seconds(time_s)} in {RUNTIMES.get(runtime, runtime)}; stock NCCL's {choice.default} "
        f"{seconds(nccl_s)} by its own model"
    )
    if nccl_s < time_s * (1 + _NO_GAIN):
        return f"{both}: not worth loading at this size"
    return f"{both}: {nccl_s / time_s:.2g} times as fast as NCCL's rings and trees (NVLS is not in its model)"


def multiples(granule_bytes: int, runtime: str) -> str:
    """Return in a sentence of which sizes ``runtime``, msccl or rccl, runs an XML."""
    own = "RCCL" if runtime == "rccl" else "NCCL"
    return (
        f"it runs buffers of any multiple of {format_size(granule_bytes)} in float32; "
        f"others are left to an algorithm of {own}"
    )


def _loaded_lines(loaded: Loaded, schedule: AnySchedule) -> Iterator[str]:
    """Yield what a runtime loads, and what its limits cost."""
    if loaded.limit:
        limit = loaded.limit.removeprefix(f"{loaded.runtime}: ")
        yield (
            f"{loaded.unrestricted_percent:.1f} % of optimal without the limits of {loaded.runtime}; "
            f"the fastest does not load: {limit}"
        )
    plan, program = loaded.plan, loaded.program
    # Only a plan for switches has no program.
    length = plural(plan.operations, "operation") if plan is not None else ""
    channels = "switches sum and copy"
    if program is not None:
        length = length or plural(program.steps, "instruction")
        channels = plural(program.channels, "channel")
    blocks = plural(_threadblocks(loaded), "threadblock")
    yield f"for {loaded.runtime}: {length}, at most {blocks} a rank, {channels}; proven"
    if plan is not None:
        granule = format_size(plan.granule_bytes)
        yield f"it runs buffers of any multiple of {granule} up to {about(plan.max_bytes)}"
    else:
        yield multiples(loaded.granule_bytes, loaded.runtime)
    whole = schedule.whole.chunks * loaded.instances
    finer = whole if program is None else program.collective.chunks
    if finer != whole:
        yield (
            f"each of {whole} chunks is {finer // whole} or {finer // whole + 1} of {finer}, as {whole} do "
            "not divide the size"
        )
    if loaded.time_s:
        shared = [f"{loaded.instances} parallel copies"] if loaded.instances > 1 else []
        how = ", ".join(shared if program is None or plan is not None else [*shared, program.protocol])
        yield (
            f"as {loaded.runtime} runs it{f' ({how})' if how else ''}: {seconds(loaded.time_s)}"
            "; the times of methods above are of links alone, without what threadblocks and steps cost"
        )


def _attempts(found: Synthesis) -> Iterator[str]:
    """Yield the best time of each method, the fastest first; print failed attempts as details.

    A star marks the method of the schedule that is kept, with the time of that schedule.
    """
    best: dict[str, float] = {}
    for tried in found.attempts:
        if tried.time_s is not None:
            best[tried.maker] = min(tried.time_s, best.get(tried.maker, float("inf")))
        else:
            console.detail(f"{tried.method}: {tried.reason}")
    widest = max([8, *map(len, best)])
    # The times are those without the limits of a runtime. If these forbid the fastest, no line is starred.
    limited = found.loaded is not None and bool(found.loaded.limit)
    chosen = None if limited else found.schedule.method
    if chosen in best and found.schedule.outcome is not None:
        best[chosen] = found.schedule.outcome.time_s
    if {"direct", "all_pairs"} <= best.keys():
        # For an all_reduce both names are of the same sends.
        del best["direct" if chosen == "all_pairs" else "all_pairs"]
    for name, time_s in sorted(best.items(), key=lambda pair: pair[1]):
        mark = "*" if name == chosen else " "
        yield f"{mark} {name:{widest}s} {seconds(time_s):<8s} {METHODS.get(name, '')}".rstrip()


def predicted_line(time_s: float) -> str:
    """Return the predicted time of a run in words."""
    return (
        f"predicted run: {seconds(time_s)}, with copies and sums in memory, which the times above leave out"
    )


def _predicted_s(schedule: AnySchedule) -> float | None:
    """Return the predicted time of a run, as in ``bench`` and ``watch``; None without measured ranks."""
    from synth.prediction import schedule_run_s

    if not schedule.is_listed or not schedule.expanded().network.measured:
        return None
    return schedule_run_s(schedule.expanded())


def _direct_s(schedule: AnySchedule) -> float | None:
    """Return the time of direct sends for a redistribution; None for others and where links are missing."""
    from synth.redistribution import direct_time_s

    blocks = schedule.whole.blocks
    return direct_time_s(schedule.expanded()) if blocks is not None and blocks.kind == "custom" else None
