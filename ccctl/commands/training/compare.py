"""`ccctl training compare`: small real training runs by each way to synchronize replicas, side by side."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccctl import console
from ccctl.arguments import (
    MOST_COUNT,
    Hostfile,
    Hosts,
    Json,
    Output,
    Quiet,
    Ranks,
    Seed,
    TimeoutSeconds,
    Verbose,
    parse_seconds,
    parse_size,
    writable,
)
from ccctl.completion import words
from ccctl.errors import FoundProblem, UsageError
from ccctl.launching import World, placed, run_ranks, world_of
from ccctl.rescue import rescuing

if TYPE_CHECKING:
    from ccctl.summaries import TrainingRows
    from exec.training.workloads import Mode, TrainingReport, TrainRequest
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
# Ways whose replicas hold the same bits after each iteration.
_SYNCHRONOUS = ("ddp", "dear", "dear-nl", "horovod", "hierarchical", "adaptive")


_MOST_LAYERS, _MOST_WIDTH, _MOST_BATCH = 1000, 1 << 14, 4096


def parse_modes(text: str) -> tuple[Mode, ...]:
    """Modes with commas between them, each with its bucket where it has one: ``ddp,ddp:4M,dear``."""
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


ModeList = Annotated[
    str,
    typer.Option(
        "--mode",
        metavar="MODE,…",
        autocompletion=words.several_of(*words.MODES),
        help="none, ddp, dear, dear-nl, horovod, ds-sync, asp, gossip, hierarchical, adaptive; ddp:4M with "
        "buckets of 4 MiB.",
    ),
]
ModelName = Annotated[
    str,
    typer.Option(
        "--model",
        metavar="MODEL",
        autocompletion=words.one_of(*words.MODELS),
        help="What is trained: mlp, cnn, transformer or moe.",
    ),
]
BackendName = Annotated[
    str,
    typer.Option(
        "--backend",
        metavar="NAME",
        autocompletion=words.one_of(*words.BACKENDS),
        help="What carries collectives: gloo, ccctl or nccl.",
    ),
]
Steps = Annotated[int, typer.Option("--steps", metavar="N", min=2, max=MOST_COUNT, help="Iterations.")]
Warmup = Annotated[
    int,
    typer.Option(
        "--warmup",
        metavar="N",
        min=0,
        max=MOST_COUNT,
        help="The first N are not timed; ds-sync averages over all ranks in them.",
    ),
]
Batch = Annotated[
    int, typer.Option("--batch", metavar="N", min=1, max=_MOST_BATCH, help="Examples of each rank.")
]
Layers = Annotated[
    int | None,
    typer.Option("--layers", metavar="N", min=1, max=_MOST_LAYERS, help="Of the model; else its own."),
]
Width = Annotated[
    int | None,
    typer.Option(
        "--width", metavar="N", min=4, max=_MOST_WIDTH, help="Of a layer, a multiple of 4; else its own."
    ),
]
Compute = Annotated[
    str | None,
    typer.Option(
        "--compute",
        metavar="TIME",
        help="Each layer sleeps so long in the forward pass, twice that in the backward pass, as for a GPU.",
    ),
]
Accuracy = Annotated[
    float,
    typer.Option(
        "--accuracy", metavar="SHARE", min=0.0, max=1.0, help="Tell when this much of held-out data is right."
    ),
]
Evaluate = Annotated[
    int,
    typer.Option("--evaluate", metavar="N", min=1, max=MOST_COUNT, help="Look at held-out data every N."),
]
Cycle = Annotated[
    str, typer.Option("--cycle", metavar="TIME", help="How often Horovod's ranks agree on ready tensors.")
]
Racks = Annotated[
    str | None,
    typer.Option(
        "--racks",
        metavar="RANKS/…",
        help="Groups of hierarchical and ds-sync, 0-3/4-7; else hosts, or pairs.",
    ),
]
NetworkFile = Annotated[
    str | None,
    typer.Option(
        "--network",
        metavar="NETWORK|FILE",
        autocompletion=words.networks,
        help="What ds-sync plans for; else equal links.",
    ),
]
Picture = Annotated[
    str | None,
    typer.Option(
        "--svg", metavar="FILE.svg", callback=writable, help="Draw loss and error over time; - is stdout."
    ),
]


def compare(
    mode: ModeList = "ddp",
    ranks: Ranks = None,
    hosts: Hosts = None,
    hostfile: Hostfile = None,
    model: ModelName = "mlp",
    backend: BackendName = "gloo",
    steps: Steps = 100,
    warmup: Warmup = 8,
    batch: Batch = 16,
    layers: Layers = None,
    width: Width = None,
    compute: Compute = None,
    accuracy: Accuracy = 0.9,
    evaluate: Evaluate = 10,
    cycle: Cycle = "5ms",
    racks: Racks = None,
    network: NetworkFile = None,
    seed: Seed = 0,
    svg: Picture = None,
    json: Json = False,
    output: Output = None,
    timeout: TimeoutSeconds = None,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Train a small model by each --mode in turn, and compare.

    The data are generated. All begin with the same parameters and see the same batches. A row tells the
    median time of an iteration (the mean over ranks) and its quartiles, bytes that a rank sends in it over
    TCP, in multiples of the model, the last loss, the accuracy on held-out data and when --accuracy was
    reached, whether all replicas are equal, and how far the final parameters are from DDP's.

    Needs torch. Ranks are started without MPI. Rows are printed and written as they finish: a run that is
    interrupted leaves a report of those it has. Exit status 1 if replicas differ that must not.
    """
    from ccctl.summaries import TrainingRows
    from exec.training.workloads import BACKENDS, MODELS, TrainRequest, require_torch

    modes = parse_modes(mode)
    for flag, value, known in (("--model", model, MODELS), ("--backend", backend, BACKENDS)):
        if value not in known:
            from probes.base import meant

            raise UsageError(
                f"{flag}: expected one of {', '.join(known)}, found {value!r}", hint=meant(value, known)
            )
    if warmup >= steps:
        raise UsageError(f"--warmup {warmup} leaves none of --steps {steps} to time")
    if width is not None and width % 4:
        raise UsageError(f"--width: expected a multiple of 4, found {width}")
    if svg == "-" and output == "-":
        raise UsageError("--svg - and -o -: one of them to stdout")
    world = world_of(ranks, hosts, hostfile)
    count, _ = placed(world)
    if count < 2:
        raise UsageError(f"-n: expected at least 2 ranks, found {count}")
    groups, planned, inputs = _network(network, racks, count)
    request = TrainRequest(
        modes=modes,
        model=model,
        backend=backend,
        steps=steps,
        warmup=warmup,
        batch=batch,
        layers=layers or 0,
        width=width or 0,
        compute_s=0.0 if compute is None else parse_seconds(compute, "--compute"),
        accuracy=accuracy,
        evaluate=evaluate,
        seed=seed,
        cycle_s=parse_seconds(cycle, "--cycle"),
        racks=groups,
        network=planned,
    )
    require_torch()
    rows = TrainingRows(modes, output, inputs, json=json, to_stdout="-" in (output, svg))
    with rescuing(rows.rescue):
        _train(request, world, rows, timeout)
    report = rows.finish()
    if svg is not None:
        _draw(report, svg)
    _judge(report)
    console.next_with(output, "ccctl show {}", "training.json")


def _train(request: TrainRequest, world: World, rows: TrainingRows, timeout_s: float | None) -> None:
    """Run all modes: those that need all ranks, then those that go on without some."""
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
    """(the groups of ranks that were asked for, the network to plan for, digests of artifacts)."""
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
    from ccctl.render.svg import WIDE, write_pictures
    from ccctl.render.svg.training import training

    write_pictures(training.pictures(report, WIDE), path)


def _judge(report: TrainingReport) -> None:
    """Raise FoundProblem where replicas differ that hold the same bits by their mode."""
    wrong = [
        f"{row.label}: replicas differ by up to {row.replica_difference:.3g}"
        for row in report.rows
        if row.mode in _SYNCHRONOUS and not row.equal
    ]
    if wrong:
        raise FoundProblem(wrong)
