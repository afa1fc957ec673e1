"""`ccctl bench`: how fast a collective is, beside the MPI library, every element checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccctl import artifacts, console
from ccctl.errors import FoundProblem, UsageError
from ccctl.launch import World, run_ranks
from ccctl.options import Hostfile, Hosts, Json, Output, Quiet, Ranks, TimeoutSeconds, Verbose
from ccctl.sizes import parse_size

if TYPE_CHECKING:
    from ccctl.programs import Proven
    from exec.bench import BenchRequest
    from exec.report import Report, Row

__all__ = ["EXAMPLES", "bench"]

EXAMPLES = (
    ("ccctl bench schedule.json --vs mpi", "eight sizes beside the MPI library's own collective"),
    ("ccctl bench schedule.json -b 8 -e 1M -f 4 --vs mpi", "choose the sizes as nccl-tests does"),
    ("ccctl bench program.json -b 1M -e 1M -d float64 --json", "one size, as one object"),
)


def bench(
    artifact: Annotated[str, typer.Argument(metavar="SCHEDULE|PROGRAM", help="What to run; - reads stdin.")],
    begin: Annotated[str, typer.Option("-b", "--begin", metavar="SIZE", help="The smallest size.")] = "1K",
    end: Annotated[str, typer.Option("-e", "--end", metavar="SIZE", help="The largest size.")] = "16M",
    factor: Annotated[
        int, typer.Option("-f", "--factor", metavar="N", min=2, help="From a size to the next: times N.")
    ] = 4,
    step: Annotated[
        str | None, typer.Option("-i", "--step", metavar="SIZE", help="From a size to the next: plus SIZE.")
    ] = None,
    warmup: Annotated[int, typer.Option("-w", "--warmup", metavar="N", min=0, help="Untimed runs.")] = 3,
    iterations: Annotated[int, typer.Option("--iters", metavar="N", min=1, help="Timed runs.")] = 20,
    dtype: Annotated[
        str, typer.Option("-d", "--dtype", metavar="TYPE", help="float32, float64, int32 or int64.")
    ] = "float32",
    op: Annotated[str, typer.Option("--op", metavar="OP", help="sum, prod, min or max.")] = "sum",
    placement: Annotated[
        str, typer.Option("--placement", metavar="WHERE", help="out (of place), in (place) or both.")
    ] = "both",
    vs: Annotated[
        str | None, typer.Option("--vs", metavar="PEERS", help="Measure beside it: mpi, the library's own.")
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile", metavar="FILE", help="Predict from this profile, not the schedule's network."
        ),
    ] = None,
    ranks: Ranks = None,
    hosts: Hosts = None,
    hostfile: Hostfile = None,
    json: Json = False,
    output: Output = None,
    timeout: TimeoutSeconds = None,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Time a schedule or a program on real buffers, over MPI, and check every element.

    Prints the columns of nccl-tests, then the predicted time and the peers, which run in turn with
    ours on the same buffers. Times are the slowest rank's. Exit status 1 if any element was wrong.
    """
    from ccctl.programs import check_world, proven_program

    sizes = _sizes(begin, end, factor, step)
    found = proven_program(artifact)
    request = _request(found, sizes, dtype, op, warmup, iterations, placement, vs, profile)
    world = World(check_world(found.program, ranks), hosts, hostfile)
    report: Report = run_ranks("exec.bench:bench_task", request, world, label="bench", timeout_s=timeout)
    if output is not None:
        artifacts.write(output, "report", report, found.inputs)
    if json and output != "-":
        console.summary({"ranks": report.ranks, "rows": [_summary(row) for row in report.rows]})
    elif output != "-":
        from ccctl.pictures.report import draw

        draw(report)
    _judge(report)
    console.next_step(f"ccctl show {output}" if output else f"ccctl bench {artifact} -o report.json")


def _request(
    found: Proven,
    sizes: tuple[int, ...],
    dtype: str,
    op: str,
    warmup: int,
    iterations: int,
    placement: str,
    vs: str | None,
    profile: str | None,
) -> BenchRequest:
    from exec.bench import BenchRequest
    from exec.layout import count_of
    from exec.redops import dtype_of, ufunc_of

    ufunc_of(op)
    itemsize = dtype_of(dtype).itemsize
    counts = tuple(dict.fromkeys(count_of(found.program.collective, size, itemsize) for size in sizes))
    return BenchRequest(
        program=found.program,
        counts=counts,
        predicted_s=_predictions(found, counts, itemsize, profile),
        dtype=dtype,
        redop=op,
        warmup=warmup,
        iterations=iterations,
        placements=_placements(placement, found),
        peers=_peers(vs),
    )


def _sizes(begin: str, end: str, factor: int, step: str | None) -> tuple[int, ...]:
    first, last = parse_size(begin, "-b"), parse_size(end, "-e")
    increment = parse_size(step, "-i") if step is not None else 0
    if first > last:
        raise UsageError(f"-b {begin} is larger than -e {end}")
    sizes = [first]
    while (following := sizes[-1] + increment if increment else sizes[-1] * factor) <= last:
        sizes.append(following)
    return tuple(sizes)


def _placements(placement: str, found: Proven) -> tuple[bool, ...]:
    asked = {"out": (False,), "in": (True,), "both": (False, True)}.get(placement)
    if asked is None:
        raise UsageError(f"--placement: expected out, in or both, found {placement!r}")
    possible = {False: found.program.out_of_place, True: found.program.in_place}
    chosen = tuple(in_place for in_place in asked if possible[in_place])
    if not chosen:
        raise UsageError(f"--placement {placement}: {found.program.name} cannot run so")
    return chosen


def _peers(vs: str | None) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in vs.split(","))) if vs else ()
    for name in names:
        if name != "mpi":
            raise UsageError(f"--vs: expected mpi, found {name!r}")
    return names


def _predictions(
    found: Proven, counts: tuple[int, ...], itemsize: int, profile: str | None
) -> tuple[float | None, ...]:
    """The simulated seconds for each count; None for all of a program, which has no network."""
    if found.schedule is None:
        if profile is not None:
            raise UsageError("--profile times a schedule; a program has none", hint="Bench the schedule.")
        return (None,) * len(counts)
    from exec.layout import Layout
    from exec.predict import onto, predicted_s

    schedule = found.schedule
    if profile is not None:
        from synth.measured import from_profile

        schedule = onto(schedule, from_profile(artifacts.read(profile, "profile").body, profile))
    return tuple(predicted_s(schedule, Layout(found.program, count).largest * itemsize) for count in counts)


def _summary(row: Row) -> dict[str, Any]:
    """A row for ``--json``: the times are out of place where that was measured."""
    measured = {"out_of_place": row.out_of_place, "in_place": row.in_place}
    shown = row.out_of_place or row.in_place
    values: dict[str, Any] = {"collective": row.collective, "size_bytes": row.size_bytes, "count": row.count}
    values |= {"dtype": row.dtype, "redop": row.redop, **(_columns(shown) if shown else {})}
    values["wrong"] = sum(found.wrong or 0 for found in measured.values() if found)
    values["predicted_us"] = None if row.predicted_s is None else row.predicted_s * 1e6
    values["peers"] = {name: peer.time_s * 1e6 for name, peer in row.peers.items()}
    return values | {name: _columns(found) for name, found in measured.items() if found}


def _columns(measured: Any) -> dict[str, Any]:
    return {
        "time_us": measured.time_s * 1e6,
        "p50_us": measured.p50_s * 1e6,
        "p99_us": measured.p99_s * 1e6,
        "algbw_gbs": measured.algbw_gbs,
        "busbw_gbs": measured.busbw_gbs,
        "slowest_rank": measured.slowest_rank,
        "wrong": measured.wrong,
    }


def _judge(report: Report) -> None:
    """Raise FoundProblem, naming size and placement, where any element was wrong."""
    found = []
    for row in report.rows:
        named = {"out of place": row.out_of_place, "in place": row.in_place, **row.peers}
        found += [
            f"{row.collective} of {row.size_bytes} bytes, {name}: {measured.wrong} wrong elements"
            for name, measured in named.items()
            if measured is not None and measured.wrong
        ]
    if found:
        raise FoundProblem("\n".join(found))
