"""Compare the schedules that runtimes can load with the best ones, in percent of the proven bound.

    python -P benchmarks/loadable.py [--networks dgx-h100:4,dgx-a100:2] [--collectives all_reduce,all_gather]
        [--sizes 64K,1M,64M] [--runtimes msccl,rccl,mscclpp] [--run] [--rows loadable.jsonl]

Each cell has one row: the percent of the bound without the runtime's limits (free), of the fastest schedule
over links that loads (can), and of the one that is taken by the runtime's costs (loaded); the number of
operations of the plan or of instructions of the XML; the processor seconds of the search (which all runtimes
share), and of compilation, proof and writing; the time by the runtime's own costs; and the limit that forbids
the fastest schedule.
With ``--run``, each file is read back and run as MSCCL's interpreter or MSCCL++'s executor would; wrong
elements and findings are counted. The last lines give, for each runtime, how many cells load, and their mean
and least share of the unrestricted speed. With ``--rows`` each row is also appended to a file, and cells that
this file already has are not computed again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections import defaultdict
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ccctl.arguments import load_network
from exec.runtimes import try_in_runtime
from probes.base import CcctlError, format_size, parse_size
from synth import Request
from synth.collective import Kind, kind_of
from synth.msccl import read_xml, write_xml
from synth.mscclpp import ExecutionPlan, read_plan, write_plan
from synth.network import Network
from synth.portfolio import RUNTIMES, Loaded, Synthesis
from synth.portfolio.loadable import loadable_among
from synth.portfolio.plain import fastest_plain
from synth.program import Program
from synth.schedules import Schedule

# DGX-1, DGX A100, H100 and B200, GB200 NVL72, MI300X and MI355X, DGX Spark, GH200, rails of 64 and 512 GPUs.
NETWORKS = (
    "dgx-1:1,dgx-a100:1,dgx-h100:1,dgx-h100:4,dgx-b200:1,mi300x:1,mi355x:1,dgx-spark:2,gh200:4,gb200-nvl72:1,"
    "dgx-h100:8/rail,dgx-h100:64/rail"
)
KINDS = "all_reduce,all_gather,reduce_scatter,all_to_all"


@dataclass(frozen=True)
class Cell:
    """One row; ``loaded_percent`` is 0 if nothing loads, and ``limit`` then gives the reason."""

    network: str
    collective: str
    size_bytes: int
    runtime: str
    free_percent: float
    search_s: float
    load_s: float = 0.0
    can_percent: float = 0.0
    loaded_percent: float = 0.0
    operations: int = 0
    run_us: float = 0.0
    instances: int = 0
    method: str = "none"
    wrong: int = 0
    limit: str = ""

    @property
    def key(self) -> tuple[str, str, int, str]:
        return self.network, self.collective, self.size_bytes, self.runtime


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--networks", default=NETWORKS)
    parser.add_argument("--collectives", default=KINDS)
    parser.add_argument("--sizes", default="64K,1M,64M")
    parser.add_argument("--runtimes", default=",".join(RUNTIMES))
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--rows", type=Path)
    wanted = parser.parse_args()
    known = {cell.key: cell for cell in kept_cells(wanted.rows)}
    print(
        "network          collective      size  runtime  free %  can %  loaded %  operations  search s"
        "  load s    run us  x  wrong  method, limit"
    )
    found: list[Cell] = []
    for name in wanted.networks.split(","):
        network = load_network(name, None, None)[0]
        for kind in map(kind_of, wanted.collectives.split(",")):
            for size_bytes in map(parse_size, wanted.sizes.split(",")):
                runtimes = wanted.runtimes.split(",")
                old = [known.get((name, kind, size_bytes, runtime)) for runtime in runtimes]
                cells = [one for one in old if one is not None]
                if len(cells) < len(runtimes):
                    cells = cells_of(name, network, kind, size_bytes, runtimes, run=wanted.run)
                    keep(cells, wanted.rows)
                for cell in cells:
                    tell(cell)
                found += cells
    summarize(found)


def kept_cells(path: Path | None) -> list[Cell]:
    """Return the cells of earlier runs."""
    if path is None or not path.exists():
        return []
    return [Cell(**json.loads(line)) for line in path.read_text().splitlines()]


def keep(cells: list[Cell], path: Path | None) -> None:
    """Append cells to the file of rows, if there is one."""
    if path is not None:
        with path.open("a") as file:
            file.writelines(json.dumps(asdict(cell)) + "\n" for cell in cells)


def cells_of(
    name: str, network: Network, kind: Kind, size_bytes: int, runtimes: list[str], *, run: bool
) -> list[Cell]:
    """Search once, then compile, prove and write for each runtime."""
    began_s, kept = time.process_time(), list[Schedule]()
    # In this process, so that its processor time is that of the whole search.
    request = Request(network, kind, size_bytes=size_bytes, jobs=0)
    fastest = fastest_plain(request, keep=kept.append)
    search_s = time.process_time() - began_s
    outcome = fastest.listed.outcome
    assert outcome is not None
    searched = Cell(name, kind, size_bytes, "", outcome.percent_of_optimal, search_s)
    return [
        loaded_cell(
            replace(searched, runtime=runtime), replace(request, runtime=runtime), fastest, kept, run=run
        )
        for runtime in runtimes
    ]


def loaded_cell(cell: Cell, request: Request, fastest: Synthesis, kept: list[Schedule], *, run: bool) -> Cell:
    """Return the cell with what the request's runtime loads, or with the limit that forbids everything."""
    began_s = time.process_time()
    try:
        found = loadable_among(request, fastest, kept)
    except CcctlError as error:
        limit = error.message.splitlines()[:2][-1]
        return replace(cell, load_s=time.process_time() - began_s, limit=limit)
    loaded, outcome = found.loaded, found.listed.outcome
    assert loaded is not None
    assert outcome is not None
    if loaded.plan is not None:
        write_plan(loaded.plan)
    else:
        write_xml(loaded.program)
    return replace(
        cell,
        load_s=time.process_time() - began_s,
        can_percent=loaded.links_percent,
        loaded_percent=outcome.percent_of_optimal,
        operations=loaded.plan.operations if loaded.plan else loaded.program.steps,
        run_us=1e6 * loaded.time_s,
        instances=loaded.instances,
        method=found.listed.method,
        wrong=wrong_elements(loaded) if run else -1,
        limit=loaded.limit,
    )


def tell(cell: Cell) -> None:
    """Print one row."""
    wrong = str(cell.wrong) if cell.wrong >= 0 else "-"
    print(
        f"{cell.network:16s} {cell.collective:14s} {format_size(cell.size_bytes):>5s}  {cell.runtime:7s}  "
        f"{cell.free_percent:6.1f}  {cell.can_percent:5.1f}  {cell.loaded_percent:8.1f}  "
        f"{cell.operations:10d}  {cell.search_s:8.1f}  "
        f"{cell.load_s:6.1f}  {cell.run_us:8.1f}  {cell.instances}  {wrong:>5s}  "
        f"{cell.method}, {cell.limit[:70] or 'no limit'}",
        flush=True,
    )


def summarize(cells: list[Cell]) -> None:
    """Print for each runtime how many cells load, and their share of the unrestricted speed."""
    by_runtime: dict[str, list[Cell]] = defaultdict(list)
    for cell in cells:
        by_runtime[cell.runtime].append(cell)
    for runtime, found in by_runtime.items():
        loads = [cell for cell in found if cell.loaded_percent]
        print(
            f"{runtime}: {len(loads)} of {len(found)} cells load; of the unrestricted speed, mean and least:"
        )
        if loads:
            can = [cell.can_percent / cell.free_percent for cell in loads]
            taken = [cell.loaded_percent / cell.free_percent for cell in loads]
            print(f"  fastest over links {statistics.mean(can):.1%}, {min(can):.1%}")
            print(f"  taken by its costs {statistics.mean(taken):.1%}, {min(taken):.1%}")


def wrong_elements(loaded: Loaded) -> int:
    """Read the file back and run it as in its runtime; return the number of wrong elements and findings."""
    made: Program | ExecutionPlan
    if loaded.plan is not None:
        made = read_plan(json.loads(write_plan(loaded.plan)), "the plan")
    else:
        made = read_xml(write_xml(loaded.program), "the file")
    report = try_in_runtime(made, orders=1)
    return report.wrong + len(report.findings)


if __name__ == "__main__":
    main()
