"""`ccctl training fusion`: the time of an iteration by each method of overlapping communication."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from ccctl import console
from ccctl.arguments import (
    MOST_RANKS,
    FamilyOptions,
    GeneralOptions,
    Output,
    Seed,
    load_network,
    network_option,
    refuse_unknown,
    written_option,
)
from ccctl.artifacts import codec, exists
from ccctl.completion import words
from ccctl.errors import UsageError
from probes.base import meant, parse_rate, parse_seconds, parse_size, parse_sizes, quoted

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


# The first buffer that DeAR tries (Sec. IV-B).
_FIRST_BYTES = 25 << 20


@dataclass(frozen=True)
class FusionOptions(GeneralOptions, FamilyOptions):
    """The arguments and options of ``fusion``."""

    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL|FILE",
            autocompletion=words.one_of(*words.LAYER_TABLES),
            help="A model artifact (- reads stdin), or resnet-50, densenet-201, inception-v4, "
            "bert-base, bert-large.",
        ),
    ]
    network: Annotated[
        str | None, network_option("Network on which collectives are timed, as rings, by simulation.")
    ] = None
    ranks: Annotated[
        int | None,
        typer.Option(
            "-n",
            "--ranks",
            metavar="N",
            min=2,
            max=MOST_RANKS,
            help="Without --network: a ring of N ranks with --alpha and --bandwidth.",
        ),
    ] = None
    method: Annotated[
        str,
        typer.Option(
            "--method",
            metavar="METHOD",
            autocompletion=words.one_of(*words.FUSION_METHODS),
            help="Method whose plan is summed up, tuned, and written by -o.",
        ),
    ] = "dear"
    buffer: Annotated[
        str | None,
        typer.Option("--buffer", metavar="SIZE", help="Largest bucket, for all methods. [each method's own]"),
    ] = None
    compute: Annotated[
        str | None,
        typer.Option(
            "--compute",
            metavar="TIME",
            help="Time of the forward and backward pass together; each layer takes its share. [the model's]",
        ),
    ] = None
    cycle: Annotated[
        str,
        typer.Option("--cycle", metavar="TIME", help="Interval at which Horovod looks for ready tensors."),
    ] = "5ms"
    negotiation: Annotated[
        str | None,
        typer.Option(
            "--negotiation",
            metavar="TIME",
            help="Time that ByteScheduler's ranks need to agree on a part. [alpha times the depth of a tree]",
        ),
    ] = None
    tune: Annotated[
        str | None,
        typer.Option(
            "--tune",
            metavar="STRATEGY",
            autocompletion=words.one_of(*words.TUNERS),
            help="Search the best buffer of --method: bo (Bayesian optimization), paper (DeAR's "
            "search), grid, random.",
        ),
    ] = None
    buffers: Annotated[
        str, typer.Option("--buffers", metavar="FROM:TO", help="Range of --tune, which begins with 25M.")
    ] = "1M:100M"
    trials: Annotated[
        int,
        typer.Option("--trials", metavar="N", min=1, max=1000, help="Number of buffers that --tune tries."),
    ] = 10
    state: Annotated[
        str | None,
        written_option("--state", help="Keep the trials of --tune in FILE, and continue from there."),
    ] = None
    measure: Annotated[
        str | None,
        typer.Option(
            "--measure",
            metavar="COMMAND",
            help="Tune on real runs of COMMAND: {bytes} in it stands for the buffer, and its last "
            "line must be the seconds of an iteration.",
        ),
    ] = None
    measure_timeout: Annotated[
        float,
        typer.Option(
            "--measure-timeout", metavar="SECONDS", min=0.001, help="Stop a run of --measure after this long."
        ),
    ] = 600.0
    seed: Seed = 0
    trace: Annotated[
        str | None, written_option("--trace", help="Write a trace of every method for Perfetto.")
    ] = None
    svg: Annotated[
        str | None, written_option("--svg", metavar="FILE.svg", help="Draw an iteration of every method.")
    ] = None
    output: Output = None


def fusion(options: FusionOptions) -> None:
    """Predict training times for ways to overlap communication.

    WFBP, DDP, MG-WFBP and Horovod run all_reduces behind the backward pass. ByteScheduler reorders parts of
    tensors. DeAR runs reduce_scatters behind the backward pass and all_gathers behind the next forward pass.
    Gradients share messages in buckets of --buffer; dear-nl takes four layers per bucket, dear-backpipe and
    dear-feedpipe overlap one half only, and -tuned uses the buffer that is best in the simulation.

    --tune searches the buffer with which an iteration of --method is shortest, in the simulation or, with
    --measure, on real runs. Equal trials lead to the same next buffer.

    The column "of S_max" compares with the largest speed-up over one rank that DeAR can reach (equation 6 of
    its paper). -o writes the plan of --method: the bucket of each tensor, and the timeline.
    """
    from ccctl.render.text import FusionComparison
    from synth.fusion import fusion_plan

    model, digests = _model(options.model)
    if options.compute is not None:
        model = model.taking(parse_seconds(options.compute, "--compute", positive=True))
    costs, measured = _costs(options)
    overheads = _overheads(options)
    search = _search(options, model, costs)
    plans = _plans(model, costs, options.buffer, overheads)
    refuse_unknown("--method", options.method, plans)

    def with_buffer(size_bytes: int) -> FusionPlan:
        return fusion_plan(model, costs, options.method, size_bytes, overheads)

    if search is not None:
        search = _run(options, search, with_buffer)
        plans[options.method] = with_buffer(search.best[0])
    _draw(model, plans, options.trace, options.svg)
    if options.output is not None:
        codec.write(options.output, "fusion", plans[options.method], digests | measured)
    if "-" not in (options.output, options.trace, options.svg):
        found = FusionComparison(model, costs, options.method, plans, search)
        if options.json:
            console.summary(found.summary())
        else:
            found.draw(None if options.measure is None else lambda size: with_buffer(size).iteration_s)
    console.next_with(options.output, "ccctl show {}", "fusion.json")


def _model(spec: str) -> tuple[Model, dict[str, str]]:
    """Return (model, digests of the artifact it came from).

    Raises UsageError, MissingInputError and DataError.
    """
    from synth.fusion import shape, shapes

    if spec in shapes() and not exists(spec):
        return shape(spec), {}
    if spec != "-" and not exists(spec) and "/" not in spec and "." not in spec:
        close = meant(spec, shapes())
        raise UsageError(
            f"MODEL {quoted(spec)}: neither a file nor a model that has a name",
            hint=f"{close + ' ' if close else ''}models: {', '.join(shapes())}; or model.json",
        )
    read = codec.read(spec, "model")
    return read.body, {"model": read.sha256}


def _search(options: FusionOptions, model: Model, costs: RingCosts) -> Tuning | None:
    """Return the search of --tune, with the trials in the file of --state; None without --tune."""
    from ccctl.runs import resumed
    from synth.fusion import DEFAULT_BUFFER_BYTES, STRATEGIES, begun

    if options.tune is None:
        if options.state is not None or options.measure is not None:
            raise UsageError(
                f"{'--state' if options.measure is None else '--measure'} is for --tune",
                hint="Add --tune bo.",
            )
        return None
    refuse_unknown("--tune", options.tune, STRATEGIES)
    method = options.method
    if not DEFAULT_BUFFER_BYTES.get(method):
        raise UsageError(
            f"--tune: {method} has no buffer of its own to tune", hint="For example --method dear."
        )
    if options.state == "-":
        raise UsageError("--state: expected a file, found -")
    low, high = parse_sizes(options.buffers, "--buffers")
    if low >= high:
        raise UsageError(f"--buffers: expected a range that rises, found {options.buffers}")
    simulated = f"{costs.ranks} ranks, {costs.alpha_s:g} s, {costs.beta_s_per_byte:g} s a byte, "
    simulated += f"{model.forward_total_s:.6g} s and {model.backward_total_s:.6g} s"
    begin = begun(
        options.tune,  # type: ignore[arg-type] # one of the strategies
        subject=f"{model.name} by {method}, {options.measure or simulated}",
        low_bytes=low,
        high_bytes=high,
        first_bytes=min(max(low, _FIRST_BYTES), high),
        seed=options.seed,
    )
    return resumed(begin, options.state)


def _run(options: FusionOptions, search: Tuning, plan: Callable[[int], FusionPlan]) -> Tuning:
    """Return the search after all its trials, simulated or on real runs."""
    from ccctl.runs import tuned
    from exec.launcher import unwinding
    from exec.timed_command import seconds_of, words_of

    if options.measure is None:
        return tuned(search, options.trials, lambda size: plan(size).iteration_s, options.state)
    line, timeout_s = options.measure, options.measure_timeout

    def measure(size_bytes: int) -> float:
        return seconds_of(words_of(line, {"bytes": str(size_bytes)}), timeout_s)

    with unwinding():
        return tuned(search, options.trials, measure, options.state)


def _costs(options: FusionOptions) -> tuple[RingCosts, dict[str, str]]:
    """Return (costs of collectives, digests of the artifact that they come from)."""
    from synth.fusion import RingCosts

    network, ranks, bandwidth = options.network, options.ranks, options.bandwidth
    if (network is None) == (ranks is None):
        raise UsageError(
            "expected one of --network and --ranks, which say what collectives cost",
            hint="For example --ranks 64 --alpha 26us --bandwidth 10Gbit/s, or --network profile.json.",
        )
    if network is not None:
        from synth.fusion import ring_costs

        loaded, digests = load_network(network, options.alpha, bandwidth)
        if loaded.ranks < 2:
            raise UsageError(f"--network: expected at least 2 ranks, found {loaded.ranks}")
        return ring_costs(loaded), digests
    if bandwidth is None:
        raise UsageError(
            "--ranks: expected the --bandwidth between two of them", hint="Add --bandwidth 10Gbit/s."
        )
    rate = parse_rate(bandwidth, "--bandwidth")
    return RingCosts(int(ranks or 0), parse_seconds(options.alpha or "0", "--alpha"), 1 / rate), {}


def _overheads(options: FusionOptions) -> Overheads:
    from synth.fusion import Overheads

    negotiation = options.negotiation
    return Overheads(
        cycle_s=parse_seconds(options.cycle, "--cycle", positive=True),
        negotiation_s=None if negotiation is None else parse_seconds(negotiation, "--negotiation"),
    )


def _plans(model: Model, costs: RingCosts, buffer: str | None, overheads: Overheads) -> dict[str, FusionPlan]:
    """Return the plan of every method, and the plans of Horovod and DeAR with their best buffers."""
    from synth.fusion import METHODS, best_plan, fusion_plan

    buffer_bytes = 0 if buffer is None else parse_size(buffer, "--buffer")
    plans: dict[str, FusionPlan] = {}
    for name in METHODS:
        # --buffer is the size of a bucket of several tensors. ByteScheduler has no such buckets.
        given = 0 if name == "bytescheduler" else buffer_bytes
        plans[name] = fusion_plan(model, costs, name, given, overheads)
        if name in ("horovod", "dear"):
            plans[f"{name}-tuned"] = best_plan(model, costs, name, overheads)
    return plans


def _draw(model: Model, plans: dict[str, FusionPlan], trace: str | None, svg: str | None) -> None:
    if trace is not None:
        from ccctl.render import trace as traces, write_trace

        blocks = traces.iteration_blocks(model, plans)
        write_trace(trace, {"model": model.name}, traces.iteration_tracks(plans), blocks)
    if svg is not None:
        from ccctl.render.svg import WIDE, iterations, write_pictures

        write_pictures([*iterations(plans, WIDE)], svg)
