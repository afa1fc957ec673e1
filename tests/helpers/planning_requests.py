"""Forty requests for schedules of all kinds, each as `ccctl synth` takes it and as Python does."""

from dataclasses import dataclass
from itertools import permutations

import numpy as np
from given_profile import profile_of_links
from gpu_boxes import box

import ccctl
from probes.link_costs import HostMemory
from probes.topology import Topology
from synth.collective import custom
from synth.network import Link, build
from synth.networks.dgx import is_pod, pod
from synth.networks.families import family, is_family
from synth.networks.measured import from_profile
from synth.networks.nominal import from_topology
from synth.portfolio.request import CollectiveRequest
from synth.rank_sets import of_sets

ALPHA_S, BYTES_PER_S = 5e-7, 50e9
KIB, MIB = 1 << 10, 1 << 20
CHUNKS_FILE = '[[chunk]]\nfrom = 0\nto = "1-3"\n[[chunk]]\nfrom = "0-3"\nto = 2\nreduce = true\ncount = 4\n'


@dataclass(frozen=True)
class PlanningRequest:
    """A request: a network by its name or file, collectives as (kind, root, ranks), and options."""

    network: str
    collectives: tuple = (("all_reduce", None, ""),)
    ranks: str = ""
    root: int | None = None
    size: int | None = None
    chunk: int | None = None
    chunks: int | None = None
    sizes: tuple[int, int, float] | None = None
    without: str = ""
    method: str = "auto"
    seed: int = 0
    hold_alpha: bool = False
    unwind: int | None = None

    @property
    def name(self):
        """Return the words that identify this request."""
        kinds = ",".join(one[0] for one in self.collectives)
        return f"{self.network}-{kinds}-{self.method}{'-without' if self.without else ''}"

    def on_command_line(self, folder):
        """The arguments of `ccctl.commands.synth.synth`, which are those of the command."""
        named = is_family(self.network)
        return {
            "network": self.network if named or is_pod(self.network) else str(folder / self.network),
            "collective": ",".join(map(_word, self.collectives))
            if self.collectives[0][0] != "custom"
            else str(folder / "chunks.toml"),
            "alpha": "0.5us" if named else None,
            "bandwidth": "50GB/s" if named else None,
            "unwind": str(self.unwind) if self.unwind else None,
            "without": self.without or None,
            "ranks": self.ranks or None,
            "root": self.root,
            "size": f"{self.size}" if self.size else None,
            "sizes": f"{self.sizes[0]}:{self.sizes[1]}" if self.sizes else None,
            "factor": self.sizes[2] if self.sizes else 2.0,
            "chunk": f"{self.chunk}" if self.chunk else None,
            "chunks": self.chunks,
            "method": self.method,
            "hold_alpha": self.hold_alpha,
            "seed": self.seed,
            "quiet": True,
        }

    def in_python(self):
        """The arguments of `synth.synthesize`."""
        kinds = tuple(self._requests())
        return {
            "network": self._network(),
            "collective": kinds[0].kind if kinds == (CollectiveRequest(kinds[0].kind),) else kinds,
            "size_bytes": self.size,
            "sizes": _sizes(*self.sizes) if self.sizes else (),
            "chunk_bytes": self.chunk,
            "chunks": self.chunks,
            "without": self.without,
            "method": self.method,
            "seed": self.seed,
        }

    def _network(self):
        if is_family(self.network):
            unwind = (self.unwind,) if self.unwind else ()
            return family(self.network, [ALPHA_S], [BYTES_PER_S], hold_alpha=self.hold_alpha, unwind=unwind)
        if is_pod(self.network):
            return pod(self.network, hold_alpha=self.hold_alpha)
        return _FILES[self.network][1](self.network)

    def _requests(self):
        for kind, root, ranks in self.collectives:
            if kind == "custom":
                sets = custom(
                    4,
                    of_sets([[0], *[[0, 1, 2, 3]] * 4]),
                    of_sets([[1, 2, 3], *[[2]] * 4]),
                    [False, *[True] * 4],
                )
                yield CollectiveRequest("custom", sets=sets)
                continue
            chosen = _numbers(ranks or self.ranks)
            at = root if root is not None else self.root
            yield CollectiveRequest(kind, at if at is not None else (*chosen, 0)[0], chosen)


def _word(collective):
    kind, root, ranks = collective
    return f"{kind}{'' if root is None else f'@{root}'}{f':{ranks}' if ranks else ''}"


def _numbers(text):
    found = []
    for part in filter(None, text.split(",")):
        low, _, high = part.partition("-")
        found += range(int(low), int(high or low) + 1)
    return tuple(found)


def _sizes(low, high, factor):
    found = []
    while low < high:
        found.append(int(low))
        low *= factor
    return (*found, high)


def _squares():
    """Two squares, joined by two slower links each way."""
    ends = [(0, 1), (1, 2), (2, 3), (3, 0), (4, 5), (5, 6), (6, 7), (7, 4), (0, 4), (2, 6)]
    for a, b in ends:
        rate = 12.5e9 if b - a == 4 else 50e9
        yield Link(a, b, 1e-6, 1 / rate)
        yield Link(b, a, 1e-6, 1 / rate)


def _round():
    for rank in range(6):
        for other in (rank + 1, rank - 1):
            yield Link(rank, other % 6, 1e-6, 1 / 50e9)


def _list_of(links):
    return "".join(f"{a},{b},{alpha_s * 1e6:g}us,{1e-9 / beta:g}GB/s\n" for a, b, alpha_s, beta, _ in links)


def _profile(ranks, hosts):
    """A profile of ranks on so many hosts; of one host with what its memory costs."""
    pairs, each = list(permutations(range(ranks), 2)), ranks // hosts
    far = np.array([a // each != b // each for a, b in pairs])
    beta = np.where(far, 1e-9, 2.5e-10) * (1 + 0.01 * np.arange(len(pairs)))
    sizes = (1 << 12, 1 << 26)
    here = HostMemory("n0", sizes, (1e-10, 2e-10), (1e-10, 2e-10), (2e-10, 4e-10), (3e-10, 5e-10), 2)
    memory = (here,) if hosts == 1 else ()
    of_ranks = [f"n{rank // each}" for rank in range(ranks)]
    spread = {"alphas": (1, 1, 1.5), "betas": (1, 1.02, 1.1, 0.98, 1.02), "samples": 20}
    return profile_of_links(of_ranks, pairs, np.where(far, 20e-6, 2e-6), beta, **spread, memory=memory)


# Each file: what writes it, and the network in it.
_FILES = {
    "squares.csv": (
        lambda path: path.write_text(_list_of(_squares())),
        lambda name: _listed(name, 8, _squares()),
    ),
    "round.csv": (lambda path: path.write_text(_list_of(_round())), lambda name: _listed(name, 6, _round())),
    "host.json": (
        lambda path: ccctl.save(path, _profile(4, 1)),
        lambda name: from_profile(_profile(4, 1), name),
    ),
    "hosts.json": (
        lambda path: ccctl.save(path, _profile(6, 2)),
        lambda name: from_profile(_profile(6, 2), name),
    ),
    "box.json": (
        lambda path: ccctl.save(path, Topology((box(links=[(0, 2), (1, 3)]),))),
        lambda name: from_topology(Topology((box(links=[(0, 2), (1, 3)]),)), name),
    ),
    "chunks.toml": (lambda path: path.write_text(CHUNKS_FILE), None),
}


def _listed(name, ranks, links):
    return build(name, [f"n{rank}" for rank in range(ranks)], links)


def write_files(folder):
    """Write the files that requests name into a folder."""
    for name, (written, _) in _FILES.items():
        written(folder / name)


def _of(network, kind="all_reduce", size=MIB, *, root=None, ranks="", **options):
    return PlanningRequest(network, ((kind, root, ranks),), size=size, **options)


REQUESTS = (
    # One collective on all ranks.
    _of("mesh:4x4", "all_gather", None, chunk=MIB),
    _of("ring:8"),
    _of("torus:3x3", "reduce_scatter"),
    _of("switch:6", "all_to_all"),
    _of("fully_connected:5", "broadcast", root=2),
    _of("hypercube:8", "reduce", root=3),
    _of("dgx-1"),
    _of("rfs:2x2x2", "all_gather", 64 * KIB),
    _of("dragonfly:3x2"),
    _of("fat_tree:2x4", "gather"),
    _of("mesh:3x3", "scatter", hold_alpha=True),
    _of("ring:4", "all_to_next"),
    _of("mesh:3x3", method="greedy", seed=7),
    _of("mesh:2x4", method="forest"),
    _of("fully_connected:4", size=None, chunk=64 * KIB, chunks=4),
    _of("switch:4", "all_gather", unwind=2),
    _of("squares.csv", "all_gather"),
    _of("box.json"),
    # Several collectives, and some of the ranks.
    PlanningRequest("mesh:4x4", (("broadcast", 0, "0-7"), ("reduce", 10, "8-15")), chunk=64 * KIB),
    PlanningRequest("torus:3x3", (("all_gather", None, "0-3"), ("all_reduce", None, "4-8")), chunk=64 * KIB),
    PlanningRequest("mesh:3x3", (("all_reduce", None, ""),), ranks="0,2,4-7", size=64 * KIB),
    _of("ring:6", "broadcast", root=3, ranks="0-5"),
    PlanningRequest("ring:4", (("custom", None, ""),), size=MIB),
    # Around failures.
    _of("mesh:3x3", size=64 * KIB, without="rank:5"),
    _of("mesh:4x4", "all_gather", without="link:0-1"),
    _of("dgx-a100:2", method="greedy", without="rank:3,link:0-1"),
    _of("ring:6", "broadcast", without="link:0>1"),
    _of("dgx-a100:2", without="host:n1"),
    _of("dgx-h100:129", size=16 * MIB, without="rank:3,rank:90"),
    # Periodic.
    _of("mesh:4x4", size=16 * MIB, method="periodic"),
    _of("torus:3x3", size=None, chunk=4096, chunks=144, method="periodic"),
    _of("ring:4", size=None, chunk=4096, chunks=1 << 19),
    # Symmetric.
    _of("torus:33x32"),
    _of("dgx-h100:129", "all_gather"),
    _of("torus:4x4", "all_gather", method="symmetric"),
    _of("round.csv", "all_gather", method="symmetric"),
    # Measured.
    _of("hosts.json"),
    _of("host.json", "broadcast", 64 * KIB),
    # Sweeps.
    _of("mesh:3x3", size=None, sizes=(KIB, MIB, 16.0)),
    _of("host.json", "all_reduce", None, sizes=(KIB, 64 * KIB, 8.0)),
)
