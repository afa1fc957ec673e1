"""The files of a sweep for a runtime: what each range of sizes costs, and where the runtime finds them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ccctl.render import Column, Say, figures, print_table, seconds
from ccctl.render.text.selection import range_columns
from ccctl.render.text.synthesis import RUNTIMES, stock_choice
from probes.base import format_size, plural

if TYPE_CHECKING:
    from synth import Synthesis
    from synth.portfolio import LoadedRange

__all__ = ["draw", "environment", "exports", "file_of", "summary"]

# microsoft/msccl takes this many files of MSCCL_XML_FILES and ignores the rest (MSCCL_MAX_NUM_ALGOS).
_MOST_XML_FILES = 4


def file_of(one: LoadedRange) -> str:
    """Return the name of a range's file: its first size in bytes, so that names sort by size."""
    return f"{one.from_bytes:011d}.{'json' if one.plan is not None else 'xml'}"


def environment(files: Sequence[Path], runtime: str) -> dict[str, list[str]]:
    """Return by library the variables with which it finds the files, all in one folder."""
    folder = files[0].parent
    if runtime == "mscclpp":
        return {"MSCCL++": [f"MSCCLPP_EXECUTION_PLAN_DIR={folder}"]}
    if runtime == "rccl":
        return {"RCCL": [f"MSCCL_ALGO_DIR={folder}", "RCCL_MSCCL_FORCE_ENABLE=1"]}
    return {
        "microsoft/msccl": [f"MSCCL_XML_FILES={':'.join(map(str, files))}", "NCCL_ALGO=MSCCL,RING,TREE"],
        "Azure/msccl-executor-nccl": [f"MSCCL_ALGO_DIR={folder}"],
    }


def exports(files: Sequence[Path], runtime: str) -> Iterator[str]:
    """Yield the lines of a shell that set the environment, under the name of the library if there are two."""
    by_library = environment(files, runtime)
    for library, variables in by_library.items():
        if len(by_library) > 1:
            yield f"# for {library}:"
        yield from (f"export {variable}" for variable in variables)


def _files(found: Synthesis, output: str | None) -> list[Path]:
    folder = Path(output).resolve() if output is not None else Path("FOLDER")
    return [folder / file_of(one) for one in found.ranges]


def summary(found: Synthesis, runtime: str, output: str | None) -> dict[str, Any]:
    """Return the object of ``synth --sizes --for --json``: the ranges with their files and sizes."""
    schedule: Any = found.schedule
    return {
        **figures(schedule.network, "ranks links"),
        **figures(schedule.collective, "collective=label"),
        "runtime": runtime,
        "environment": environment(_files(found, output), runtime),
        "ranges": [
            {
                "file": file_of(one),
                "operations": one.plan.operations if one.plan is not None else None,
                "granule_bytes": one.granule_bytes,
            }
            | figures(one, "from_bytes to_bytes method instances")
            | figures(one.program, "protocol channels instructions=steps")
            | {
                "threadblocks_max": (one.plan or one.program).threadblocks_max,
                "sizes": [
                    figures(point, "size_bytes percent_of_optimal unrestricted_percent limit")
                    | {"runtime_s": point.time_s or None, "nccl_s": _nccl_s(schedule, point.size_bytes)}
                    for point in one.points
                ],
            }
            for one in found.ranges
        ],
        "candidates": found.candidates,
        "synthesis_s": found.synthesis_s + found.proof_s,
        "peak_bytes": found.peak_bytes + found.workers_bytes,
    }


def draw(found: Synthesis, runtime: str, output: str | None, say: Say) -> None:
    """Print a row for each range of sizes, then one for each size, and the environment."""
    schedule: Any = found.schedule
    say(
        f"{schedule.collective.label} on {schedule.network.name} for {runtime}: "
        f"{plural(len(found.ranges), 'range')} of sizes, all proven"
    )
    print_table((*range_columns(found.ranges), *_RANGE), found.ranges, say)
    say("")
    points: list[dict[str, Any]] = [
        {"range": one, "point": point, "nccl_s": _nccl_s(schedule, point.size_bytes)}
        for one in found.ranges
        for point in one.points
    ]
    limited = any(point.limit for one in found.ranges for point in one.points)
    timed = any(point.time_s for one in found.ranges for point in one.points)
    known = any(row["nccl_s"] for row in points)
    beside = (*_TIMED, *_BESIDE) if timed and known else _TIMED if timed else ()
    print_table((*_POINT, *beside, *(_LIMITED if limited else ())), points, say)
    if beside:
        say(f"predicted: in {RUNTIMES[runtime]}, with what threadblocks cost; % of optimal: of links alone")
        if known:
            say("stock NCCL: its rings and trees by its own model, which lacks NVLS")
    else:
        say("of links alone: what threadblocks cost comes on top")
    slower = [format_size(row["point"].size_bytes) for row in points if _is_slower(row)]
    if slower:
        say(f"not worth loading, as stock NCCL is faster by its own model: {', '.join(slower)}")
    say("")
    for line in exports(_files(found, output), runtime):
        say(line)
    if runtime == "msccl" and len(found.ranges) > _MOST_XML_FILES:
        say(
            f"microsoft/msccl reads only the first {_MOST_XML_FILES} files; a larger -f makes fewer ranges, "
            "and Azure/msccl-executor-nccl reads them all"
        )


def _nccl_s(schedule: Any, size_bytes: int) -> float | None:
    """Return the time of stock NCCL's own choice by NCCL's model; None if that does not cover it."""
    choice = stock_choice(schedule.network, schedule.collective, size_bytes)
    return choice.default_us / 1e6 if choice is not None else None


def _is_slower(row: dict[str, Any]) -> bool:
    """Return whether stock NCCL is at least as fast as what is loaded."""
    return bool(row["nccl_s"] and row["point"].time_s >= row["nccl_s"])


def _length(one: LoadedRange) -> str:
    if one.plan is not None:
        return plural(one.plan.operations, "operation")
    return plural(one.program.steps, "instruction")


_RANGE = (
    Column("file", file_of),
    Column("method", "method"),
    Column("protocol", "program.protocol"),
    Column("instances", "instances"),
    Column("threadblocks", lambda one: (one.plan or one.program).threadblocks_max),
    Column("program", _length),
    Column("multiples of", "granule_bytes", format_size),
)
_POINT = (
    Column("size", "point.size_bytes", format_size),
    Column("method", "range.method"),
    Column("% of optimal", "point.percent_of_optimal", "{:.1f}"),
)
_TIMED = (Column("predicted", lambda row: row["point"].time_s or None, seconds),)
_BESIDE = (
    Column("stock NCCL", "nccl_s", seconds),
    Column("", lambda row: "NCCL is faster" if _is_slower(row) else ""),
)
_LIMITED = (
    Column("without limits", "point.unrestricted_percent", "{:.1f}"),
    Column("the fastest does not load because", "point.limit"),
)
