"""`ccctl training fusion`: what an iteration takes by each way of overlapping its communication."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccctl import console
from ccctl.arguments import (
    MOST_RANKS,
    Alpha,
    Bandwidth,
    Json,
    Output,
    Quiet,
    Seed,
    Verbose,
    load_model,
    load_network,
    parse_rate,
    parse_seconds,
    parse_size,
    parse_sizes,
)
from ccctl.artifacts import codec, refuse_unwritable
from ccctl.completion import words
from ccctl.errors import UsageError

if TYPE_CHECKING:
    from synth.fusion import FusionPlan, Model, Overheads, RingCosts, Tuning

__all__ = ["EXAMPLES", "fusion"]

EXAMPLES = (
    (
        "ccctl training fusion resnet-50 --ranks 64 --alpha 26us --bandwidth 10Gbit/s",
        "what 64 ranks take for an iteration, by each method",
    ),
    (
        "ccctl training fusion bert-base --network profile.json --buffer 8M -o fusion.json",
        "on the measured network, with buckets of 8 MiB; the plan of DeAR is written",
    ),
    (
        "ccctl training fusion bert-base --ranks 64 --alpha 26us --bandwidth 10Gbit/s --svg iteration.svg"
        " --trace iteration.json.gz",
        "draw what processor and network do in an iteration, as a picture and for Perfetto",
    ),
    (
        "ccctl training fusion inception-v4 --ranks 64 --alpha 26us --bandwidth 10Gbit/s --tune bo --trials 5"
        " --state search.json",
        "search for the best buffer of DeAR in the simulation; the same line with more trials goes on",
    ),
    (
        "ccctl training fusion resnet-50 --ranks 4 --alpha 26us --bandwidth 10Gbit/s --tune grid --trials 2"
        " --measure 'sh -c \"echo warm-up; echo 0.2\" {bytes}'",
        "search on real runs: the command is given the buffer and prints the seconds of an iteration",
    ),
)


# What DeAR begins with (Sec. IV-B).
_FIRST_BYTES = 25 << 20


def _written(value: str | None) -> str | None:
    if value is not None and value != "-":
        refuse_unwritable(Path(value))
    return value


ModelName = Annotated[
    str,
    typer.Argument(
        metavar="MODEL|FILE",
        autocompletion=words.one_of(*words.LAYER_TABLES),
        help="A model artifact, - is stdin; or resnet-50, densenet-201, inception-v4, bert-base, bert-large.",
    ),
]
NetworkSpec = Annotated[
    str | None,
    typer.Option(
        "--network",
        metavar="NETWORK|FILE",
        autocompletion=words.networks,
        help="What collectives cost: those of a ring on it, simulated.",
    ),
]
RankCount = Annotated[
    int | None,
    typer.Option(
        "-n",
        "--ranks",
        metavar="N",
        min=2,
        max=MOST_RANKS,
        help="Without --network: a ring of N ranks with --alpha and --bandwidth.",
    ),
]
MethodName = Annotated[
    str,
    typer.Option(
        "--method",
        metavar="METHOD",
        autocompletion=words.one_of(*words.FUSION_METHODS),
        help="Whose plan is written and summed up.",
    ),
]
Buffer = Annotated[
    str | None,
    typer.Option("--buffer", metavar="SIZE", help="The largest bucket of all methods; else each one's own."),
]
Compute = Annotated[
    str | None,
    typer.Option(
        "--compute", metavar="TIME", help="Forward and backward together take this, each layer its share."
    ),
]
Cycle = Annotated[
    str, typer.Option("--cycle", metavar="TIME", help="How often Horovod looks for ready tensors.")
]
Negotiation = Annotated[
    str | None,
    typer.Option(
        "--negotiation",
        metavar="TIME",
        help="What ByteScheduler's ranks take to agree on a part; else an alpha for each step of a tree.",
    ),
]
Tune = Annotated[
    str | None,
    typer.Option(
        "--tune",
        metavar="STRATEGY",
        autocompletion=words.one_of(*words.TUNERS),
        help="Search the best buffer of --method: bo (Bayesian optimization), paper (as DeAR has it), grid, "
        "random.",
    ),
]
Buffers = Annotated[
    str, typer.Option("--buffers", metavar="FROM:TO", help="The range of --tune; it begins with 25M.")
]
Trials = Annotated[
    int, typer.Option("--trials", metavar="N", min=1, max=1000, help="How many buffers --tune tries.")
]
StateFile = Annotated[
    str | None,
    typer.Option(
        "--state",
        metavar="FILE",
        callback=_written,
        help="Keep the trials of --tune in FILE, and go on from there.",
    ),
]
Measure = Annotated[
    str | None,
    typer.Option(
        "--measure",
        metavar="COMMAND",
        help="Tune on runs of COMMAND: {bytes} in it is the buffer, its last line an iteration's seconds.",
    ),
]
MeasureTimeout = Annotated[
    float,
    typer.Option("--measure-timeout", metavar="SECONDS", help="End a run of --measure after this long."),
]
TraceFile = Annotated[
    str | None,
    typer.Option(
        "--trace", metavar="FILE", callback=_written, help="Write a trace of every method for Perfetto."
    ),
]
SvgFile = Annotated[
    str | None,
    typer.Option("--svg", metavar="FILE.svg", callback=_written, help="Draw an iteration of every method."),
]


def fusion(
    model: ModelName,
    network: NetworkSpec = None,
    ranks: RankCount = None,
    alpha: Alpha = None,
    bandwidth: Bandwidth = None,
    method: MethodName = "dear",
    buffer: Buffer = None,
    compute: Compute = None,
    cycle: Cycle = "5ms",
    negotiation: Negotiation = None,
    tune: Tune = None,
    buffers: Buffers = "1M:100M",
    trials: Trials = 10,
    state: StateFile = None,
    measure: Measure = None,
    measure_timeout: MeasureTimeout = 600.0,
    seed: Seed = 0,
    trace: TraceFile = None,
    svg: SvgFile = None,
    json: Json = False,
    output: Output = None,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Predict training times by ways to overlap communication.

    WFBP, DDP, MG-WFBP and Horovod all_reduce behind the backward pass; ByteScheduler reorders parts of
    tensors; DeAR reduce_scatters behind the backward pass and all_gathers behind the next forward pass, in
    buckets of --buffer. dear-nl takes four layers a bucket, dear-backpipe and dear-feedpipe overlap one half
    only; -tuned has the buffer that is best in the simulation.

    --tune searches the buffer with which an iteration of --method is shortest, in the simulation or, with
    --measure, on real runs, each the mean of some steps. Which buffer comes next follows from the trials.

    S_max is the largest speed-up over one rank that DeAR can have (its equation 6). The plan of --method can
    be written with -o: the bucket of each tensor, and the timeline.
    """
    from ccctl.render.text.training import fusion as text, model as model_text
    from synth.fusion import fusion_plan

    found, digests = load_model(model)
    if compute is not None:
        if (compute_s := parse_seconds(compute, "--compute")) <= 0:
            raise UsageError(f"--compute: expected a time > 0, found {compute}")
        found = found.taking(compute_s)
    costs, measured = _costs(network, ranks, alpha, bandwidth)
    overheads = _overheads(cycle, negotiation)
    asked = _Asked(tune, buffers, trials, state, measure, measure_timeout, seed)
    search = _search(asked, method, found, costs)
    plans = _plans(found, costs, buffer, overheads)
    if method not in plans:
        from probes.base import meant

        raise UsageError(
            f"--method: expected one of {', '.join(plans)}, found {method!r}", hint=meant(method, plans)
        )

    def with_buffer(size_bytes: int) -> FusionPlan:
        return fusion_plan(found, costs, method, size_bytes, overheads)

    if search is not None:
        search = _run(asked, search, with_buffer)
        plans[method] = with_buffer(search.best[0])
    chosen = plans[method]
    _draw(found, plans, trace, svg)
    if output is not None:
        codec.write(output, "fusion", chosen, digests | measured)
    to_stdout = "-" in (output, trace, svg)
    if json and not to_stdout:
        told: dict[str, Any] = {"model": found.name, "ranks": costs.ranks, "method": method}
        told |= {"alpha_s": costs.alpha_s, "beta_s_per_byte": costs.beta_s_per_byte}
        told |= text.figures(chosen)
        if search is not None:
            told["tuning"] = {"strategy": search.strategy, "trials": search.trials, "best_s": search.best[1]}
        console.summary(told | {"methods": {name: text.figures(plan) for name, plan in plans.items()}})
    elif not to_stdout:
        console.data(model_text.headline(found))
        console.data(text.costs_line(costs))
        text.table(plans)
        if search is not None:
            from ccctl.render.text.training import draw

            draw(search, None if measure is None else lambda size: with_buffer(size).iteration_s)
        console.data(
            f"S_max {chosen.speedup_max:.1f}: at most so many times faster than one rank, each half of an "
            "all_reduce behind its pass"
        )
    console.next_with(output, "ccctl show {}", "fusion.json")


@dataclass(frozen=True)
class _Asked:
    """The options of a search."""

    tune: str | None
    buffers: str
    trials: int
    state: str | None
    measure: str | None
    timeout_s: float
    seed: int


def _search(asked: _Asked, method: str, model: Model, costs: RingCosts) -> Tuning | None:
    """The search that is asked for, with the trials of its file; None where none is."""
    from ccctl.runs import resumed
    from synth.fusion import DEFAULT_BUFFER_BYTES, STRATEGIES, begun

    if asked.tune is None:
        if asked.state is not None or asked.measure is not None:
            raise UsageError(
                f"{'--state' if asked.measure is None else '--measure'} is for --tune", hint="Add --tune bo."
            )
        return None
    if asked.tune not in STRATEGIES:
        from probes.base import meant

        raise UsageError(
            f"--tune: expected one of {', '.join(STRATEGIES)}, found {asked.tune!r}",
            hint=meant(asked.tune, STRATEGIES),
        )
    if not DEFAULT_BUFFER_BYTES.get(method):
        raise UsageError(
            f"--tune: {method} has no buffer of its own to tune", hint="For example --method dear."
        )
    if asked.state == "-":
        raise UsageError("--state: expected a file, found -")
    low, high = parse_sizes(asked.buffers, "--buffers")
    if low >= high:
        raise UsageError(f"--buffers: expected a range that rises, found {asked.buffers}")
    simulated = f"{costs.ranks} ranks, {costs.alpha_s:g} s, {costs.beta_s_per_byte:g} s a byte, "
    simulated += f"{model.forward_total_s:.6g} s and {model.backward_total_s:.6g} s"
    begin = begun(
        asked.tune,
        subject=f"{model.name} by {method}, {asked.measure or simulated}",
        low_bytes=low,
        high_bytes=high,
        first_bytes=min(max(low, _FIRST_BYTES), high),
        seed=asked.seed,
    )
    return resumed(begin, asked.state)


def _run(asked: _Asked, search: Tuning, plan: Callable[[int], FusionPlan]) -> Tuning:
    """The search after all its trials, simulated or on real runs."""
    from ccctl.runs import tuned
    from exec.launcher import unwinding
    from exec.timed_command import seconds_of, words_of

    if asked.measure is None:
        return tuned(search, asked.trials, lambda size: plan(size).iteration_s, asked.state)
    line, timeout_s = asked.measure, asked.timeout_s
    if timeout_s <= 0:
        raise UsageError(f"--measure-timeout: expected seconds > 0, found {timeout_s:g}")
    with unwinding():
        return tuned(
            search,
            asked.trials,
            lambda size: seconds_of(words_of(line, {"bytes": str(size)}), timeout_s),
            asked.state,
        )


def _costs(
    network: str | None, ranks: int | None, alpha: str | None, bandwidth: str | None
) -> tuple[RingCosts, dict[str, str]]:
    """(costs of collectives, digests of the artifact that they come from)."""
    from synth.fusion import RingCosts

    if (network is None) == (ranks is None):
        raise UsageError(
            "expected one of --network and --ranks: what collectives cost",
            hint="For example --ranks 64 --alpha 26us --bandwidth 10Gbit/s, or --network profile.json.",
        )
    if network is not None:
        from synth.fusion import ring_costs

        loaded, digests = load_network(network, alpha, bandwidth)
        if loaded.ranks < 2:
            raise UsageError(f"--network: expected at least 2 ranks, found {loaded.ranks}")
        return ring_costs(loaded), digests
    if bandwidth is None:
        raise UsageError(
            "--ranks: expected the --bandwidth between two of them", hint="Add --bandwidth 10Gbit/s."
        )
    rate = parse_rate(bandwidth, "--bandwidth")
    return RingCosts(int(ranks or 0), parse_seconds(alpha or "0", "--alpha"), 1 / rate), {}


def _overheads(cycle: str, negotiation: str | None) -> Overheads:
    from synth.fusion import Overheads

    cycle_s = parse_seconds(cycle, "--cycle")
    if cycle_s <= 0:
        raise UsageError(f"--cycle: expected a time > 0, found {cycle}")
    return Overheads(
        cycle_s=cycle_s,
        negotiation_s=None if negotiation is None else parse_seconds(negotiation, "--negotiation"),
    )


def _plans(model: Model, costs: RingCosts, buffer: str | None, overheads: Overheads) -> dict[str, FusionPlan]:
    """The plan of every method, and of those whose buffer is tuned."""
    from synth.fusion import METHODS, best_plan, fusion_plan

    buffer_bytes = 0 if buffer is None else parse_size(buffer, "--buffer")
    plans: dict[str, FusionPlan] = {}
    for name in METHODS:
        # A buffer is a bucket of several tensors, which ByteScheduler has none of.
        given = 0 if name == "bytescheduler" else buffer_bytes
        plans[name] = fusion_plan(model, costs, name, given, overheads)
        if name in ("horovod", "dear"):
            plans[f"{name}-tuned"] = best_plan(model, costs, name, overheads)
    return plans


def _draw(model: Model, plans: dict[str, FusionPlan], trace: str | None, svg: str | None) -> None:
    if trace is not None:
        from ccctl.render import iteration_blocks, iteration_tracks, write_trace

        write_trace(trace, {"model": model.name}, iteration_tracks(plans), iteration_blocks(model, plans))
    if svg is not None:
        from ccctl.render.svg import WIDE, write_pictures
        from ccctl.render.svg.training import picture

        write_pictures([picture(plans, WIDE)], svg)
