"""`ccctl training compare`: small real training runs by each way to synchronize replicas, side by side."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccctl import console
from ccctl.arguments import (
    MOST_COUNT,
    GeneralOptions,
    Output,
    Seed,
    WorldOptions,
    network_option,
    refuse_unknown,
    written_option,
)
from ccctl.completion import words
from ccctl.errors import FoundProblem, UsageError
from ccctl.launching import World, placed, run_ranks
from ccctl.rescue import rescuing
from probes.base import parse_seconds, parse_size

if TYPE_CHECKING:
    from ccctl.runs import TrainingRows
    from exec.training.workloads import Mode, TrainingReport, TrainRequest
    from probes.base import Floats
    from synth.network import Network

__all__ = ["EXAMPLES", "compare", "parse_modes"]

EXAMPLES = (
    (
        "ccctl training compare --mode ddp,gossip,asp -n 2 --steps 40 -o training.json --svg training.svg",
        "three ways on this host, with a picture of loss and error",
    ),
    (
        "ccctl training compare --mode ddp,ddp:1M,horovod -n 2 --layers 6 --width 256 --compute 2ms"
        " --steps 20",
        "as if each layer took a GPU 2 ms forward and 4 ms backward, with two sizes of buckets",
    ),
)
# Modes whose replicas hold the same bits after each iteration.
_SYNCHRONOUS = ("ddp", "dear", "dear-nl", "horovod", "horovod-tuned", "hierarchical", "adaptive")


# Larger numbers are typing errors, which are refused before a model fills the memory.
_MOST_LAYERS, _MOST_WIDTH, _MOST_BATCH = 1000, 1 << 14, 4096


def parse_modes(text: str) -> tuple[Mode, ...]:
    """Return the modes of a list such as ``ddp,ddp:4M,dear``, some with a bucket size."""
    from exec.training.workloads import MODES, Mode

    found = []
    for word in text.split(","):
        name, colon, bucket = word.strip().partition(":")
        if name not in MODES:
            raise UsageError(f"--mode: expected some of {', '.join(MODES)}, found {name!r}")
        mode = Mode(name, parse_size(bucket, "--mode") if colon else 0)
        if colon and not mode.has_buckets:
            raise UsageError(f"--mode {word!r}: {name} has no buckets of a size")
        found.append(mode)
    return tuple(found)


@dataclass(frozen=True)
class CompareOptions(GeneralOptions, WorldOptions):
    """The arguments and options of ``compare``."""

    mode: Annotated[
        str,
        typer.Option(
            "--mode",
            metavar="MODE,…",
            autocompletion=words.several_of(*words.MODES),
            help="none, ddp, dear, dear-nl, horovod, horovod-tuned, ds-sync, asp, gossip, hierarchical or "
            "adaptive; ddp:4M has buckets of 4 MiB.",
        ),
    ] = "ddp"
    model: Annotated[
        str,
        typer.Option(
            "--model",
            metavar="MODEL",
            autocompletion=words.one_of(*words.MODELS),
            help="Model to train: mlp, cnn, transformer or moe.",
        ),
    ] = "mlp"
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            metavar="FILE.csv",
            help="Train mlp or moe on these examples, 64 numbers and a class from 0 to 9 a line. [generated]",
        ),
    ] = None
    backend: Annotated[
        str,
        typer.Option(
            "--backend",
            metavar="NAME",
            autocompletion=words.one_of(*words.BACKENDS),
            help="Backend for collectives: gloo, ccctl or nccl.",
        ),
    ] = "gloo"
    steps: Annotated[
        int, typer.Option("--steps", metavar="N", min=2, max=MOST_COUNT, help="Number of iterations.")
    ] = 100
    warmup: Annotated[
        int,
        typer.Option(
            "--warmup",
            metavar="N",
            min=0,
            max=MOST_COUNT,
            help="Iterations at the start that are not timed; in them ds-sync averages over all ranks.",
        ),
    ] = 8
    batch: Annotated[
        int,
        typer.Option(
            "--batch", metavar="N", min=1, max=_MOST_BATCH, help="Examples per rank in an iteration."
        ),
    ] = 16
    layers: Annotated[
        int | None,
        typer.Option(
            "--layers", metavar="N", min=1, max=_MOST_LAYERS, help="Number of layers. [the model's own]"
        ),
    ] = None
    width: Annotated[
        int | None,
        typer.Option(
            "--width",
            metavar="N",
            min=4,
            max=_MOST_WIDTH,
            help="Width of a layer, a multiple of 4. [the model's own]",
        ),
    ] = None
    compute: Annotated[
        str | None,
        typer.Option(
            "--compute",
            metavar="TIME",
            help="Sleep this long in each layer's forward pass, and twice that in its backward "
            "pass, as if a GPU computed.",
        ),
    ] = None
    accuracy: Annotated[
        float,
        typer.Option(
            "--accuracy",
            metavar="SHARE",
            min=0.0,
            max=1.0,
            help="Print when this share of held-out data is classified correctly.",
        ),
    ] = 0.9
    evaluate: Annotated[
        int,
        typer.Option(
            "--evaluate",
            metavar="N",
            min=1,
            max=MOST_COUNT,
            help="Evaluate held-out data every N iterations.",
        ),
    ] = 10
    cycle: Annotated[
        str,
        typer.Option(
            "--cycle", metavar="TIME", help="Interval at which Horovod's ranks agree on ready tensors."
        ),
    ] = "5ms"
    racks: Annotated[
        str | None,
        typer.Option(
            "--racks",
            metavar="RANKS/…",
            help="Groups of hierarchical and ds-sync, 0-3/4-7. [hosts, or pairs]",
        ),
    ] = None
    network: Annotated[str | None, network_option("Network that ds-sync plans for. [equal links]")] = None
    seed: Seed = 0
    svg: Annotated[
        str | None,
        written_option("--svg", metavar="FILE.svg", help="Draw loss and error over time; - is stdout."),
    ] = None
    output: Output = None


def compare(options: CompareOptions) -> None:
    """Train a small model by each --mode in turn, and compare.

    The data are generated, or --data's; all modes begin with the same parameters and see the same batches. A
    row has the median time of an iteration (mean over ranks) and its quartiles; the bytes that a rank sends
    over TCP in it, as a multiple of the model; the last loss; the accuracy on held-out data, and when
    --accuracy was reached; whether all replicas are equal; and how far the final parameters are from DDP's.

    Needs torch. Ranks are started without MPI. Rows are printed and written as they finish, so an interrupted
    run keeps those it has. Exit status 1 if replicas differ that must be equal.
    """
    from ccctl.runs import TrainingRows
    from exec.training.workloads import require_torch

    request, inputs, world = _request(options)
    require_torch()
    to_stdout = "-" in (options.output, options.svg)
    rows = TrainingRows(request.modes, options.output, inputs, json=options.json, to_stdout=to_stdout)
    with rescuing(rows.rescue):
        _train(request, world, rows, options.timeout)
    report = rows.end()
    if options.svg is not None:
        _draw(report, options.svg)
    _judge(report)
    console.next_with(options.output, "ccctl show {}", "training.json")


def _request(options: CompareOptions) -> tuple[TrainRequest, dict[str, str], World]:
    """Return (what to train, digests of artifacts, the ranks); raises UsageError."""
    from exec.training.workloads import BACKENDS, MODELS, TrainRequest

    modes = parse_modes(options.mode)
    refuse_unknown("--model", options.model, MODELS)
    refuse_unknown("--backend", options.backend, BACKENDS)
    if options.warmup >= options.steps:
        raise UsageError(f"--warmup {options.warmup} leaves none of --steps {options.steps} to time")
    if options.width is not None and options.width % 4:
        raise UsageError(f"--width: expected a multiple of 4, found {options.width}")
    if options.svg == "-" and options.output == "-":
        raise UsageError("--svg - and -o -: one of them to stdout")
    world = options.world()
    count, _ = placed(world)
    if count < 2:
        raise UsageError(f"-n: expected at least 2 ranks, found {count}")
    groups, planned, inputs = _network(options.network, options.racks, count)
    examples = None if options.data is None else _examples(options.data, options.model, options.batch * count)
    request = TrainRequest(
        modes=modes,
        model=options.model,
        backend=options.backend,
        steps=options.steps,
        warmup=options.warmup,
        batch=options.batch,
        layers=options.layers or 0,
        width=options.width or 0,
        compute_s=0.0 if options.compute is None else parse_seconds(options.compute, "--compute"),
        accuracy=options.accuracy,
        evaluate=options.evaluate,
        seed=options.seed,
        cycle_s=parse_seconds(options.cycle, "--cycle"),
        racks=groups,
        network=planned,
        examples=examples,
    )
    return request, inputs, world


def _examples(path: str, model: str, together: int) -> Floats:
    """Return the rows of a file; raises UsageError for other models, or if a batch of all ranks is larger."""
    from exec.training.workloads import HELD_OUT_OF, TABULAR, read_examples

    if model not in TABULAR:
        raise UsageError(f"--data: for --model {' or '.join(TABULAR)}, found {model}")
    rows = read_examples(path)
    if len(rows) - len(rows) // HELD_OUT_OF < together:
        raise UsageError(
            f"--data: expected at least {together} examples to train on, a batch of all ranks, "
            f"found {len(rows)} with those held out",
            hint="A smaller --batch, or fewer ranks.",
        )
    return rows


def _train(request: TrainRequest, world: World, rows: TrainingRows, timeout_s: float | None) -> None:
    """Run the modes that need all ranks, then the modes that go on without some."""
    from exec.training.workloads import SURVIVING

    alike: dict[str, Any] = {"label": "train", "timeout_s": timeout_s, "keep": rows.keep}
    needing = tuple(mode for mode in request.modes if mode.name not in SURVIVING)
    others = tuple(mode for mode in request.modes if mode.name in SURVIVING)
    reference = None
    if needing:
        asked = replace(request, modes=needing)
        reference = run_ranks("exec.training.workloads.task:train_task", asked, world, sockets=True, **alike)
    if others:
        asked = replace(request, modes=others, reference=reference)
        run_ranks("exec.training.workloads.task:elastic_task", asked, world, survive=True, **alike)


def _network(
    network: str | None, racks: str | None, ranks: int
) -> tuple[tuple[tuple[int, ...], ...], Network | None, dict[str, str]]:
    """Return (the groups of ranks that were asked for, the network to plan for, digests of artifacts)."""
    from ccctl.arguments import load_network, parse_racks
    from synth.networks import family

    planned, inputs = None, dict[str, str]()
    if network is not None:
        planned, inputs = load_network(network, None, None)
        if planned.ranks != ranks:
            raise UsageError(f"--network: expected {ranks} ranks, found {planned.ranks}")
    if racks is None:
        return (), planned, inputs
    known = planned or family(f"switch:{ranks}", [0.0], [1e9])
    return parse_racks(racks, known), planned, inputs


def _draw(report: TrainingReport, path: str) -> None:
    from ccctl.render.svg import draw, write_pictures

    write_pictures(draw("training", report), path)


def _judge(report: TrainingReport) -> None:
    """Raise FoundProblem if replicas differ in a mode that keeps them bitwise equal."""
    wrong = [
        f"{row.label}: replicas differ by up to {row.replica_difference:.3g}"
        for row in report.rows
        if row.mode in _SYNCHRONOUS and not row.equal
    ]
    if wrong:
        raise FoundProblem(wrong)
