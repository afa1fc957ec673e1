"""Growth of synthesis: seconds, memory and percent of the proven bound on large networks and fine cuts.

    python benchmarks/scale.py [--limit-s 300] [--memory-gib 16] [--growth 512] [FILTER ...]

Runs the rows whose name contains a FILTER, or all; then families from 64 to ``--growth`` ranks by symmetry,
with the exponent by which their seconds grow with ranks and with links (least squares over logarithms). Each
row runs in a separate process with a limit of time and memory; a row that exceeds a limit says so. Seconds
are wall-clock time of the network and of the search with bounds and proof, once loops are compiled; memory is
the peak of the process. A row meets its goal if both seconds and percent do.

Others report: TACOS 512 NPUs 6.09 min, 40,000 NPUs 2.52 h; SyCCL 512 GPUs tens of minutes; PCCL all_to_all of
512 ranks 11.68 min.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from probes.base.errors import CcctlError
from synth import Request, makes_attempts, synthesize
from synth.collective import Kind
from synth.kernels.compiled_loop import all_compiled
from synth.network import Network
from synth.networks.failures import Failures
from synth.networks.families import family
from synth.portfolio.plain import warm
from synth.schedules import PeriodicSchedule

sys.path.insert(0, str(Path(__file__).parent))

from forest_cases import network_of
from one_slow_rank import slowed

MESH, GLOBAL, NIC = "53.687", "400,200", "50"
GIB, MIB = 1 << 30, 1 << 20


@dataclass(frozen=True)
class Row:
    """One case and its goal: at most ``most_s`` seconds, at least ``least_percent`` of the bound.

    ``bandwidth`` is in GB/s, of each dimension. Rank 0 has ``share`` of the others' bandwidth. ``gone`` are
    failed ranks, ``cut_links`` ordered pairs whose links have failed. ``chunks`` is the number of chunks of
    the buffer; without it the search chooses the best. ``periodic`` schedules instead of plain ones, or
    ``symmetric`` ones whatever the number of ranks.
    """

    kind: Kind
    network: str
    bandwidth: str = ""
    size_bytes: int = GIB
    share: float = 1.0
    gone: tuple[int, ...] = ()
    cut_links: tuple[tuple[int, int], ...] = ()
    chunks: int | None = None
    periodic: bool = False
    symmetric: bool = False
    most_s: float = math.inf
    least_percent: float = 0.0

    @property
    def name(self) -> str:
        """The case in words, by which it is chosen, too."""
        more = f" rank 0 at {self.share:.0%}" if self.share < 1 else ""
        more += f" without {len(self.gone)} ranks, {len(self.cut_links)} links" if self.gone else ""
        more += f" in {self.chunks} chunks" if self.chunks else ""
        more += ", periodic" if self.periodic else ""
        size = f"{self.size_bytes >> 20} MiB" if self.size_bytes < GIB else f"{self.size_bytes >> 30} GiB"
        return f"{self.kind} {self.network} {size}{more}"

    def made(self) -> Network:
        """Return the network, with its slow rank."""
        found = network_of(self.network, self.bandwidth)
        return slowed(found, self.share) if self.share < 1 else found

    def request(self, network: Network) -> Request:
        """Return the row as a request on ``network``."""
        method = "periodic" if self.periodic else "symmetric" if self.symmetric else "auto"
        asked = Request(network, self.kind, size_bytes=self.size_bytes, method=method)
        if self.gone or self.cut_links:
            asked = replace(asked, without=Failures(self.gone, self.cut_links))
        if self.chunks is not None:
            chunk_bytes = -(-self.size_bytes // self.chunks)
            asked = replace(asked, size_bytes=None, chunk_bytes=chunk_bytes, chunks=self.chunks)
        return asked


def _everywhere(network: str, bandwidth: str) -> list[Row]:
    kinds: tuple[Kind, ...] = ("all_gather", "reduce_scatter", "all_reduce")
    most_s = 60 if math.prod(map(int, network.partition(":")[2].split("x"))) < 1 << 15 else 300
    return [Row(kind, network, bandwidth, GIB, most_s=most_s, least_percent=95) for kind in kinds]


ROWS = (
    Row("all_reduce", "mesh:32x32", MESH, most_s=20, least_percent=95),
    Row("all_reduce", "mesh:32x32", MESH, periodic=True, most_s=20, least_percent=95),
    Row("all_reduce", "fat_tree:8x8x8/2", NIC, 256 * MIB, most_s=20, least_percent=96),
    Row("all_reduce", "switch:64", NIC, share=0.5, most_s=3, least_percent=98),
    Row("all_reduce", "switch:512", NIC, share=0.5, most_s=60, least_percent=98),
    Row("all_gather", "dragonfly:33x16", GLOBAL, 256 * MIB, most_s=2, least_percent=97),
    Row("all_reduce", "dragonfly:33x16", GLOBAL, 256 * MIB, most_s=30, least_percent=95),
    Row("all_reduce", "dragonfly:33x16", GLOBAL, 256 * MIB, periodic=True, most_s=30, least_percent=95),
    Row("all_reduce", "mesh:10x10", MESH, chunks=100, periodic=True),
    Row("all_reduce", "mesh:10x10", MESH, chunks=10_000, periodic=True, least_percent=99),
    Row("all_reduce", "dgx-h100:512", most_s=30, least_percent=97),
    Row(
        "all_reduce",
        "dgx-h100:512",
        gone=(9, 1000, 2003),
        cut_links=((16, 17),),
        most_s=120,
        least_percent=93,
    ),
    Row("all_gather", "torus:16x16x16", MESH, most_s=60, least_percent=95),
    *_everywhere("torus:16x16x64", MESH),
    *_everywhere("torus:64x32x32", MESH),
    *_everywhere("fat_tree:32x32x16", NIC),
    *_everywhere("fat_tree:64x32x32", NIC),
    *_everywhere("dragonfly:129x127", GLOBAL),
    *_everywhere("dragonfly:257x255", GLOBAL),
    Row("all_to_all", "torus:16x16x16", MESH, most_s=120, least_percent=95),
)
# Three dimensions of a torus, three levels of a fat tree: 512 to 65,536 ranks.
LARGE_SHAPES = (
    "8x8x8",
    "16x8x8",
    "16x16x8",
    "16x16x16",
    "32x16x16",
    "32x32x16",
    "32x32x32",
    "64x32x32",
)
TORI = ("4x4x4", "8x4x4", "8x8x4", *LARGE_SHAPES)
FAT_TREES = ("8x8", "8x16", "8x8x4", *LARGE_SHAPES)
DRAGONFLIES = (
    "9x8",
    "16x8",
    "17x16",
    "33x16",
    "65x16",
    "65x32",
    "65x64",
    "129x64",
    "129x127",
    "257x255",
)
GROWING: tuple[tuple[Kind, str, str, tuple[str, ...]], ...] = (
    ("all_gather", "torus", MESH, TORI),
    ("all_reduce", "torus", MESH, TORI),
    ("all_gather", "fat_tree", NIC, FAT_TREES),
    ("all_reduce", "fat_tree", NIC, FAT_TREES),
    ("all_gather", "dragonfly", GLOBAL, DRAGONFLIES),
    ("all_reduce", "dragonfly", GLOBAL, DRAGONFLIES),
)


@dataclass(frozen=True)
class Measured:
    """The result of a row: its cost and its quality, or ``why`` there is no result."""

    why: str = ""
    ranks: int = 0
    links: int = 0
    seconds: float = math.nan
    peak_mib: float = math.nan
    percent: float = math.nan
    method: str = ""
    chunks: int = 0

    def meets(self, row: Row) -> bool:
        """Return whether the row's goal is met."""
        return not self.why and self.seconds <= row.most_s and self.percent >= row.least_percent


def warm_symmetric(kind: Kind) -> None:
    """Load or compile the loops on a small torus."""
    with all_compiled():
        synthesize(family("torus:4x4", [5e-7], [5e10]), kind, MIB, method="symmetric")


def measured_here(row: Row, memory_gib: float) -> Measured:
    """Run a row in this process, which from now on may hold no more than ``memory_gib``."""
    resource.setrlimit(resource.RLIMIT_AS, (int(memory_gib * GIB),) * 2)
    try:
        begun_s = time.perf_counter()
        network = row.made()
        network_s = time.perf_counter() - begun_s
        request = row.request(network)
        if makes_attempts(request):
            warm(network.ranks)
        else:
            warm_symmetric(row.kind)
        begun_s = time.perf_counter()
        schedule = synthesize(request).schedule
    except CcctlError as error:
        return Measured(" ".join(str(error).split())[:160])
    except MemoryError:
        return Measured(f"more than {memory_gib:g} GiB")
    taken_s = network_s + time.perf_counter() - begun_s
    assert schedule.outcome is not None
    return Measured(
        "",
        network.ranks,
        network.links,
        taken_s,
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        schedule.outcome.percent_of_optimal,
        schedule.method,
        schedule.chunks if isinstance(schedule, PeriodicSchedule) else schedule.collective.chunks,
    )


def measured_apart(row: Row, limit_s: float, memory_gib: float) -> Measured:
    """Run a row in a separate process, which is ended after ``limit_s``."""
    command = [
        sys.executable,
        "-P",
        __file__,
        "--row",
        json.dumps(vars(row)),
        "--memory-gib",
        str(memory_gib),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        return Measured(f"not within {limit_s:g} s")
    if done.returncode:
        return Measured((done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1][:160])
    return Measured(**json.loads(done.stdout.splitlines()[-1]))


def line(name: str, row: Row, found: Measured) -> str:
    """Return the row as text."""
    if found.why:
        return f"{name:58} {found.why}"
    aims = [f"≤ {row.most_s:g} s"] * (row.most_s < math.inf)
    aims += [f"≥ {row.least_percent:g} %"] * (row.least_percent > 0)
    said = f"{'met' if found.meets(row) else 'missed'}: {', '.join(aims)}" if aims else ""
    return (
        f"{name:58}{found.ranks:6}{found.links:11}{found.seconds:9.2f}{found.peak_mib:9.0f}{found.percent:9.2f}"
        f"  {found.method:10}{found.chunks:8}  {said}"
    )


def exponent(of: Sequence[float], seconds: Sequence[float]) -> float:
    """Return the power of ``of`` to which ``seconds`` grow: the slope of a line through the logarithms."""
    return float(np.polyfit(np.log(of), np.log(seconds), 1)[0])


def growth(wanted: Sequence[str], most_ranks: int, limit_s: float, memory_gib: float) -> None:
    """Print each family at rising sizes, and the exponents of its seconds."""
    for kind, name, bandwidth, shapes in GROWING:
        if wanted and not any(word in f"growth {kind} {name}" for word in wanted):
            continue
        done: list[Measured] = []
        for shape in shapes:
            row = Row(kind, f"{name}:{shape}", bandwidth, symmetric=True)
            if math.prod(map(int, shape.split("x"))) > most_ranks:
                break
            found = measured_apart(row, limit_s, memory_gib)
            print(line(f"growth {row.name}", row, found), flush=True)
            if found.why:
                break
            done.append(found)
        if len(done) > 1:
            seconds = [each.seconds for each in done]
            by_ranks, by_links = (
                exponent([getattr(each, what) for each in done], seconds) for what in ("ranks", "links")
            )
            print(
                f"growth {kind} {name}: seconds ~ ranks^{by_ranks:.2f} ~ links^{by_links:.2f}"
                f" over {done[0].ranks} … {done[-1].ranks} ranks",
                flush=True,
            )


def main() -> None:
    """Print the requested rows, each as soon as it is done."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("wanted", nargs="*", metavar="FILTER")
    parser.add_argument("--limit-s", type=float, default=300.0)
    parser.add_argument("--memory-gib", type=float, default=16.0)
    parser.add_argument("--growth", type=int, default=512, metavar="RANKS")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.row is not None:
        values = json.loads(asked.row)
        values.update(gone=tuple(values["gone"]), cut_links=tuple(map(tuple, values["cut_links"])))
        print(json.dumps(vars(measured_here(Row(**values), asked.memory_gib))))
        return
    print(
        f"{'case':58}{'ranks':>6}{'links':>11}{'seconds':>9}{'MiB':>9}{'percent':>9}"
        f"  {'method':10}{'chunks':>8}  goal"
    )
    for row in ROWS:
        if not asked.wanted or any(word in row.name for word in asked.wanted):
            found = measured_apart(row, asked.limit_s, asked.memory_gib)
            print(line(row.name, row, found), flush=True)
    growth(asked.wanted, asked.growth, asked.limit_s, asked.memory_gib)


if __name__ == "__main__":
    main()
