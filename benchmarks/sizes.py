"""Percent of the proven bound against size, for every collective on several networks.

    python -P benchmarks/sizes.py [--networks ring:8,torus:4x4x4] [--collectives all_reduce] [--sizes 1K,16K]
        [--random 5] [--unusual 8] [--seed 1] [--below 85] [--cells FILE [--only-known]] [--picture FILE.svg]

Without options: 1 KiB to 1 GiB by factors of four, five collectives, six named networks and five random ones.
``--unusual`` adds networks of eight other kinds, of 6 to 18 ranks each: random regular graphs, Kautz and de
Bruijn graphs, circulants, twisted tori, uneven fat trees, stars around a hub, and sites far apart. A cell is
the largest proven lower bound in percent of the simulated time; 100 is proven optimal. The mean of each
collective and size ends the table. With ``--below`` the cells under that percent follow, each with its method
and the bound that binds. Cells in the file ``--cells`` are not measured again, and new cells are added to it,
so the table can be made in parts. ``--picture`` draws percent against size, a line for each network, a panel
for each collective.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path

from ccctl.render.svg.axes import SIZE, Axis
from ccctl.render.svg.chart import Chart, charts, series
from ccctl.render.svg.drawing import palette
from ccctl.render.svg.files import write_pictures
from probes.base import format_size, parse_size
from synth import Request, synthesize
from synth.collective import Kind, kind_of
from synth.network import Link, Network, build
from synth.networks.dgx import is_pod, pod
from synth.networks.families import family

# GB/s of each dimension, where the network does not say itself.
NAMED = {
    "ring:8": "50",
    "torus:4x4x4": "50",
    "dgx-a100:4": "",
    "rfs:2x4x8": "200,100,50",
    "fat_tree:8x8": "50",
    "dragonfly:9x8": "400,200",
}
KINDS: tuple[Kind, ...] = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
SIZES = tuple(1 << power for power in range(10, 31, 2))
ALPHA_S = 0.7e-6


@dataclass(frozen=True)
class Cell:
    """One collective of one size on one network, and the percent of the bound that its schedule reaches."""

    network: str
    kind: Kind
    size_bytes: int
    percent: float
    method: str
    binds: str
    seconds: float


def named(spec: str) -> Network:
    """Return the network of this name, with links of 0.7 µs."""
    if is_pod(spec):
        return pod(spec)
    bandwidths = [float(word) * 1e9 for word in NAMED.get(spec, "50").split(",")]
    return family(spec, [ALPHA_S], bandwidths)


def drawn(seed: int) -> Network:
    """Return a network of 6 to 40 ranks; its kind takes turns with ``seed``, all else is drawn."""
    draw = random.Random(seed)
    made = (_hosts, _uneven_switch, _random_links, _random_family, _random_pods)[seed % 5]
    return made(seed, draw)


def _hosts(seed: int, draw: random.Random) -> Network:
    """Return hosts of equal size, each a line of ranks with random chords, joined by a NIC for each host."""
    hosts, size = draw.randint(2, 5), draw.randint(3, 8)
    inside_s, inside = draw.uniform(0.5e-6, 2e-6), draw.choice((20e9, 50e9, 200e9))
    links: dict[tuple[int, int], Link] = {}
    for host in range(hosts):
        members = list(range(host * size, host * size + size))
        chords = [(a, b) for a in members for b in members if a < b and b != a + 1 and draw.random() < 0.4]
        for a, b in [*pairwise(members), *chords]:
            for ends in ((a, b), (b, a)):
                links[ends] = Link(*ends, inside_s, 1 / inside)
    alphas_s = [draw.uniform(2e-6, 20e-6) for _ in range(hosts)]
    rates = [draw.choice((1.25e9, 12.5e9, 25e9)) for _ in range(hosts)]
    for a in range(hosts * size):
        for b in range(hosts * size):
            from_host, to_host = a // size, b // size
            if from_host != to_host:
                alpha_s = max(alphas_s[from_host], alphas_s[to_host])
                beta = 1 / min(rates[from_host], rates[to_host])
                links[a, b] = Link(a, b, alpha_s, beta, (f"out {from_host}", f"in {to_host}"))
    names = [f"h{rank // size}" for rank in range(hosts * size)]
    return build(f"drawn:{seed} {hosts} hosts of {size}", names, links.values())


def _uneven_switch(seed: int, draw: random.Random) -> Network:
    """Return ranks behind a switch, some of them with a slower port."""
    ranks, alpha_s = draw.randint(6, 40), draw.uniform(1e-6, 10e-6)
    rates = [draw.choice((12.5e9, 25e9, 25e9, 50e9)) for _ in range(ranks)]
    links = [
        Link(a, b, alpha_s, 1 / min(rates[a], rates[b]), (f"out {a}", f"in {b}"))
        for a in range(ranks)
        for b in range(ranks)
        if a != b
    ]
    return build(f"drawn:{seed} switch of {ranks}", [f"h{rank}" for rank in range(ranks)], links)


def _random_links(seed: int, draw: random.Random) -> Network:
    """Return a random tree with random links added to it; each direction has its own alpha and bandwidth."""
    ranks = draw.randint(6, 40)
    pairs = {(draw.randrange(rank), rank) for rank in range(1, ranks)}
    for _ in range(draw.randint(ranks, 3 * ranks)):
        a, b = sorted(draw.sample(range(ranks), 2))
        pairs.add((a, b))
    links = [
        Link(*ends, draw.uniform(0.5e-6, 5e-6), 1 / draw.choice((12.5e9, 25e9, 50e9, 100e9)))
        for a, b in sorted(pairs)
        for ends in ((a, b), (b, a))
    ]
    return build(f"drawn:{seed} {ranks} ranks, {len(links)} links", ["h"] * ranks, links)


def _random_family(seed: int, draw: random.Random) -> Network:
    """Return a regular network of one of five families."""
    spec, dimensions = draw.choice(
        (("mesh:5x7", 1), ("torus:5x6", 1), ("hypercube:32", 1), ("rfs:2x3x5", 3), ("fat_tree:6x6", 1))
    )
    rates = [draw.choice((25e9, 50e9, 100e9, 200e9)) for _ in range(dimensions)]
    found = family(spec, [draw.uniform(0.3e-6, 5e-6)], rates)
    return replace(found, name=f"drawn:{seed} {spec}")


def _random_pods(seed: int, draw: random.Random) -> Network:
    """Return hosts of GPUs, each with a switch, and a NIC for each GPU or for two."""
    hosts, size, shared = draw.randint(2, 5), draw.choice((4, 6, 8)), draw.choice((1, 2))
    inside_s, outside_s = draw.uniform(0.5e-6, 1.5e-6), draw.uniform(2e-6, 10e-6)
    inside, nic = draw.choice((100e9, 300e9)), draw.choice((12.5e9, 25e9, 50e9))
    links = []
    for a in range(hosts * size):
        for b in range(hosts * size):
            if a == b:
                continue
            near = a // size == b // size
            ports = (f"gpu {a}", f"to {b}") if near else (f"nic {a // shared}", f"to nic {b // shared}")
            links.append(Link(a, b, inside_s if near else outside_s, 1 / (inside if near else nic), ports))
    names = [f"h{rank // size}" for rank in range(hosts * size)]
    return build(f"drawn:{seed} {hosts} pods of {size}, {size // shared} NICs", names, links)


def unusual(seed: int) -> Network:
    """Return a network of 6 to 18 ranks; its kind takes turns with ``seed``, all else is drawn."""
    draw = random.Random(f"unusual {seed}")
    kind = ("regular", "kautz", "de bruijn", "circulant", "twisted torus", "uneven tree", "star", "sites")[
        seed % 8
    ]
    alpha_s, rate = draw.uniform(0.5e-6, 3e-6), draw.choice((12.5e9, 25e9, 50e9, 100e9))
    if kind == "uneven tree":
        return _uneven_tree(f"drawn:{seed} {kind}", draw, alpha_s, rate)
    ranks, pairs = _directed(kind, draw)
    links = []
    for a, b in sorted(pairs):
        far = kind == "sites" and a // 4 != b // 4
        link_rate = rate * draw.choice((0.5, 1.0, 2.0)) if kind == "star" else rate
        links.append(Link(a, b, alpha_s * (20 if far else 1), 1 / (link_rate / (8 if far else 1))))
    return build(f"drawn:{seed} {kind} of {ranks}", ["h"] * ranks, links)


def _directed(kind: str, draw: random.Random) -> tuple[int, set[tuple[int, int]]]:
    """Return the number of ranks and the directed pairs of one kind of graph."""
    if kind == "regular":
        ranks, degree = draw.choice((8, 10, 12, 14, 16)), draw.choice((3, 4))
        while True:
            ends = [rank for rank in range(ranks) for _ in range(degree)]
            draw.shuffle(ends)
            found = set(zip(ends[::2], ends[1::2], strict=True))
            both = {*found, *((b, a) for a, b in found)}
            if len(both) == ranks * degree and all(a != b for a, b in both):
                return ranks, both
    if kind == "kautz":
        letters = draw.choice((2, 3))
        words = [(a, b) for a in range(letters + 1) for b in range(letters + 1) if a != b]
        return len(words), {
            (words.index(one), words.index(other)) for one in words for other in words if one[1] == other[0]
        }
    if kind == "de bruijn":
        base, ranks = draw.choice(((2, 8), (2, 16), (3, 9)))
        pairs = ((rank, (rank * base + digit) % ranks) for rank in range(ranks) for digit in range(base))
        return ranks, {(a, b) for a, b in pairs if a != b}
    if kind == "circulant":
        ranks = draw.choice((7, 9, 11, 13, 17))
        steps = {1, draw.randint(2, ranks // 2)}
        return ranks, {
            (rank, (rank + way) % ranks) for rank in range(ranks) for s in steps for way in (s, -s)
        }
    if kind == "twisted torus":
        rows, columns = draw.choice(((3, 4), (4, 4), (3, 5), (2, 6)))
        twist = draw.randint(1, columns - 1)
        found = set()
        for rank in range(rows * columns):
            row, column = divmod(rank, columns)
            turn = twist if row == rows - 1 else 0
            below = (row + 1) % rows * columns + (column + turn) % columns
            for other in (row * columns + (column + 1) % columns, below):
                found |= {(rank, other), (other, rank)}
        return rows * columns, found
    if kind == "star":
        ranks = draw.randint(6, 12)
        return ranks, {pair for rank in range(1, ranks) for pair in ((0, rank), (rank, 0))}
    sites = draw.randint(2, 4)
    pairs_inside = {(a, b) for a in range(4 * sites) for b in range(4 * sites) if a != b and a // 4 == b // 4}
    gates = range(0, 4 * sites, 4)
    return 4 * sites, pairs_inside | {(a, b) for a in gates for b in gates if a != b}


def _uneven_tree(name: str, draw: random.Random, alpha_s: float, rate: float) -> Network:
    """Return leaf switches with unequal numbers of ranks, joined by uplinks that their ranks share."""
    sizes = [draw.randint(2, 6) for _ in range(draw.randint(2, 4))]
    leaf = [at for at, size in enumerate(sizes) for _ in range(size)]
    uplink = rate * draw.choice((0.5, 1.0, 2.0))
    links = []
    for a, one in enumerate(leaf):
        for b, other in enumerate(leaf):
            if a == b:
                continue
            far = one != other
            shared = (f"up {one}", f"down {other}") if far else ()
            beta = 1 / min(rate, uplink) if far else 1 / rate
            links.append(Link(a, b, alpha_s * (2 if far else 1), beta, (f"out {a}", *shared, f"in {b}")))
    return build(f"{name} {'+'.join(map(str, sizes))}", [f"leaf{at}" for at in leaf], links)


def measured(network: Network, kind: Kind, size_bytes: int) -> Cell:
    """Return the result of `synth` in one process."""
    begun_s = time.process_time()
    found = synthesize(Request(network=network, kind=kind, size_bytes=size_bytes, jobs=0))
    outcome = found.schedule.outcome
    assert outcome is not None
    return Cell(
        network.name,
        kind,
        size_bytes,
        outcome.percent_of_optimal,
        found.schedule.method,
        f"{outcome.binding.name} {outcome.binding.detail}".strip(),
        time.process_time() - begun_s,
    )


Known = dict[tuple[str, Kind, int], Cell]


def known_cells(path: Path) -> Known:
    """Return the cells that a file holds, one a line."""
    lines = path.read_text().splitlines() if path.exists() else []
    cells = [Cell(**json.loads(line)) for line in lines]
    return {(cell.network, cell.kind, cell.size_bytes): cell for cell in cells}


def pictured(cells: Sequence[Cell], path: str) -> None:
    """Draw percent against size: a panel for each collective, a line for each network."""
    networks = list(dict.fromkeys(cell.network for cell in cells))
    panels = []
    for kind in dict.fromkeys(cell.kind for cell in cells):
        lines = []
        for at, name in enumerate(networks):
            found = [cell for cell in cells if (cell.network, cell.kind) == (name, kind)]
            sizes = [cell.size_bytes for cell in found]
            lines.append(series(name, palette(at), sizes, [cell.percent for cell in found]))
        panels.append(Chart(SIZE, Axis(kind, lambda y: f"{y:g} %"), lines))
    about_it = "A panel for each collective, a line for each network."
    write_pictures([charts("Percent of the proven bound over size", about_it, panels, 960)], path)


def percent_in(row: Sequence[Cell], size_bytes: int) -> str:
    """Return the percent at this size; a dash where there is no such cell."""
    return next((f"{cell.percent:.1f}" for cell in row if cell.size_bytes == size_bytes), "–")


def main() -> None:
    """Print one row for each network and collective, and then the cells below the limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--networks", default=",".join(NAMED), help="names, with commas between them")
    parser.add_argument("--collectives", default=",".join(KINDS))
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--random", type=int, default=5, help="so many networks drawn at random")
    parser.add_argument("--unusual", type=int, default=0, help="so many networks of eight other kinds")
    parser.add_argument("--seed", type=int, default=1, help="of the first network drawn")
    parser.add_argument("--below", type=float, help="list the cells under this percent")
    parser.add_argument("--cells", type=Path, metavar="FILE", help="cells measured before; others are added")
    parser.add_argument("--only-known", action="store_true", help="measure nothing more")
    parser.add_argument("--picture", metavar="FILE.svg", help="draw percent against size")
    asked = parser.parse_args()
    sizes = [parse_size(word) for word in asked.sizes.split(",")]
    networks = [named(spec) for spec in asked.networks.split(",") if spec]
    networks += [drawn(asked.seed + number) for number in range(asked.random)]
    networks += [unusual(asked.seed + number) for number in range(asked.unusual)]
    known = known_cells(asked.cells) if asked.cells else {}
    cells: list[Cell] = []
    print("| network | collective | " + " | ".join(map(format_size, sizes)) + " | CPU s |")
    print("|---|---|" + "---:|" * (len(sizes) + 1))
    for network in networks:
        for kind in map(kind_of, asked.collectives.split(",")):
            row = []
            for size in sizes:
                cell = known.get((network.name, kind, size))
                if cell is None and asked.only_known:
                    continue
                if cell is None:
                    cell = measured(network, kind, size)
                    if asked.cells:
                        with asked.cells.open("a") as file:
                            file.write(json.dumps(asdict(cell)) + "\n")
                row.append(cell)
            if not row:
                continue
            cells += row
            percents = " | ".join(percent_in(row, size) for size in sizes)
            seconds = sum(cell.seconds for cell in row)
            print(f"| {network.name} | {kind} | {percents} | {seconds:.1f} |", flush=True)
    for kind in dict.fromkeys(cell.kind for cell in cells):
        means = []
        for size in sizes:
            found = [cell.percent for cell in cells if (cell.kind, cell.size_bytes) == (kind, size)]
            means.append(f"{sum(found) / len(found):.1f}" if found else "–")
        seconds = sum(cell.seconds for cell in cells if cell.kind == kind)
        print(f"| mean | {kind} | {' | '.join(means)} | {seconds:.1f} |")
    if asked.picture:
        pictured(cells, asked.picture)
    if asked.below is not None:
        short = [cell for cell in cells if cell.percent < asked.below]
        print(f"\n{len(short)} of {len(cells)} cells are below {asked.below:g} %:\n")
        for cell in short:
            print(
                f"- {cell.network} {cell.kind} {format_size(cell.size_bytes)}: {cell.percent:.1f} %, "
                f"{cell.method}; bound: {cell.binds}"
            )


if __name__ == "__main__":
    main()
