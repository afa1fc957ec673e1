"""TACOS's Tables I to V and Figures 6, 19 and 21: ours beside the paper's, row by row.

    python benchmarks/tacos_tables.py [--quick] [--programs] [--mechanisms SECONDS] [FILTER]
    python benchmarks/tacos_tables.py --published [FILTER]

The paper gives times as multiples of its own best result, so we compare how many times slower its baselines
are than the best. The baselines are simulated as its Sec. VII-C has them: a ring in the order of the ranks
and direct sends, both along shortest paths, with each rank's share whole. ``halves`` is a reduce_scatter and
then an all_gather, each at its bound, over our time: the paper's all_reduce is never faster than that. Quoted
are the paper's tables and text; no bar of a figure is read off.

``ilp`` and ``taccl`` are TACOS-ILP and a TACCL-like baseline, with --programs: one chunk a share, a minute
each, for at most 36 ranks. A dash stands for no result in that time, or for none better than greedy's. Our
TACCL-like baseline routes as TACCL does, with the loads of links in its program; the paper's is TACOS-ILP
that ignores congestion.

With --mechanisms each row of Table II is followed by TACOS-ILP's two mechanisms, each alone for at most
SECONDS: early termination with recovery, and time clustering. Their only incumbent is a schedule along
shortest paths. ``ccctl synth --method ilp --mechanism NAME`` runs the same for one network.

``auto`` is the CPU seconds of all methods, bounds and proof (for more than 128 ranks, of the methods that
begin within 15 s). ``greedy`` is the CPU seconds of one run with one chunk a share, as in TACOS-Greedy (of
``paths`` for the gather), and ``ratio`` the paper's seconds over it. Where the paper gives seconds for
TACOS-ILP only, the remark says so. All is compiled before.

With --published nothing of ours is run. The ring and direct sends are divided by TACOS-Greedy as published
(`tacos_published`, one chunk a share, the best of 8 searches), as in the paper's tables, and by each other.
Switches are unwound (degree max inside, 1 outside), and alpha holds links, too.

The paper gives sizes only in Fig. 21 and alphas only in Fig. 6. It gives no bandwidth of Ring_Ring, no roots
in Table IV, and no participants in Table V. Here: 64 MiB, 0.5 us, 100 GB/s as on its meshes, rank 0; all
ranks, but in the all_gather those of the last two rows. Tables IV and V move one chunk of 1 MiB a rank and
hold links for alpha too. So times are numbers of steps, as the paper's ratios are quotients of numbers of
steps.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from routed_peers import Routed

from synth import Request, synthesize
from synth.bounds.lower_bounds import bounds
from synth.check.schedule import check
from synth.collective import Kind, collective
from synth.errors import NotApplicableError
from synth.methods import greedy, ilp, paths
from synth.network import Network
from synth.networks.failures import Failures, without
from synth.networks.families import family
from synth.portfolio.plain import warm
from synth.portfolio.rank_subsets import serve
from synth.portfolio.request import CollectiveRequest
from synth.published import taccl, tacos_greedy
from synth.schedules import Outcome
from synth.simulation.schedule import replay
from synth.tacos_ilp.horizon_search import Mechanism

SIZE_BYTES = 64 << 20
CHUNK_BYTES = 1 << 20
ALPHA_S = 0.5e-6
MANY_RANKS, TIME_LIMIT_S = 128, 15.0
MOST_SOLVED_RANKS, SOLVING_S, PROGRAMS, BY_MECHANISM = 36, 60.0, "--programs", "--mechanisms"
PUBLISHED = "--published"
MECHANISMS: tuple[Mechanism, ...] = ("early-termination", "time-clustering")
NODE = (200.0, 100.0, 50.0)
TENANTS = (
    CollectiveRequest("broadcast", 2, tuple(range(36))),
    CollectiveRequest("reduce", 17, tuple(range(36))),
    CollectiveRequest("all_gather", 24, tuple(range(24, 36))),
)


@dataclass(frozen=True)
class Case:
    """One row: the collectives, the network, and the paper's figures (0: none)."""

    where: str
    spec: str
    gbs: tuple[float, ...]
    ring: float
    direct: float
    paper_s: float
    remark: str = ""
    kind: Kind = "all_reduce"
    failed: tuple[int, ...] = ()
    collectives: tuple[CollectiveRequest, ...] = ()
    size_bytes: int = SIZE_BYTES
    quick: bool = False
    taccl: float = 0.0

    def network(self) -> Network:
        """Return the network without its failed parts."""
        bandwidth = [gbs * 1e9 for gbs in self.gbs]
        whole = family(self.spec, [ALPHA_S], bandwidth, hold_alpha=self.in_steps)
        return without(whole, Failures(ranks=self.failed))

    @property
    def in_steps(self) -> bool:
        """Whether the case moves single chunks."""
        return self.kind != "all_reduce" or bool(self.collectives)

    def unwound(self) -> Network:
        """Return the network as the paper's search sees it: without switches, links held for alpha."""
        unwind = {"rfs": (1,), "switch_switch": (7, 1)}.get(self.spec.partition(":")[0], ())
        bandwidth = [gbs * 1e9 for gbs in self.gbs]
        whole = family(self.spec, [ALPHA_S], bandwidth, hold_alpha=True, unwind=unwind)
        return without(whole, Failures(ranks=self.failed))

    def asked(self, ranks: int) -> tuple[CollectiveRequest, ...]:
        """Return the collectives, each with the ranks that take part."""
        left = tuple(rank for rank in range(ranks) if rank not in self.failed)
        return self.collectives or (CollectiveRequest(self.kind, 0, left),)


CASES = (
    Case("Table I", "rfs:2x4x1", NODE, 1.44, 3.74, 0.00029, "ILP 70 ms", quick=True, taccl=1.00),
    Case("Table I", "rfs:2x4x2", NODE, 3.78, 7.44, 0.00063, "ILP 0.79 s", quick=True, taccl=2.89),
    Case(
        "Table I",
        "rfs:2x4x4",
        NODE,
        11.28,
        7.48,
        0.0089,
        "ILP 20.01 s, greedy 1.45x slower",
        quick=True,
        taccl=4.10,
    ),
    Case("Table I", "rfs:2x4x8", NODE, 26.47, 7.54, 0.09792, "ILP 70.16 s, greedy 1.58x slower", taccl=4.27),
    Case("Table I", "rfs:2x4x16", NODE, 36.00, 4.79, 1.08),
    Case("Table I", "rfs:2x4x32", NODE, 72.24, 4.66, 16.50),
    Case("Table I", "rfs:2x4x64", NODE, 146.21, 4.64, 365.4),
    Case(
        "Table II",
        "torus:8x8",
        (100.0,),
        8.00,
        13.81,
        13.88,
        "ILP clustered: 1.06x, 10 min: 1.00x",
        taccl=1.56,
    ),
    Case(
        "Table II",
        "torus:10x10",
        (100.0,),
        8.74,
        19.61,
        58.18,
        "ILP clustered: 1.17x, 15 min: 1.00x",
        taccl=1.57,
    ),
    Case(
        "Table II",
        "torus:12x12",
        (100.0,),
        9.67,
        27.33,
        168.26,
        "ILP clustered: 1.23x, 20 min: 1.00x",
        taccl=1.57,
    ),
    Case(
        "Table III",
        "mesh:4x4",
        (100.0,),
        5.38,
        5.08,
        0.00353,
        "ILP 4.92 s",
        failed=(7, 9),
        quick=True,
        taccl=1.00,
    ),
    Case("Table IV", "mesh:6x6", (100.0,), 0, 3.90, 0.10, "ILP", "broadcast", quick=True, taccl=1.00),
    Case("Table IV", "mesh:6x6", (100.0,), 0, 1.67, 56.13, "ILP", "gather", quick=True, taccl=1.11),
    Case(
        "Table V",
        "mesh:6x6",
        (100.0,),
        0,
        3.63,
        0.00367,
        "greedy 1.25x slower",
        collectives=TENANTS,
        quick=True,
        taccl=1.50,
    ),
    Case("Fig. 6", "ring:100", (100.0,), 1.00, 12.88, 0, "text"),
    Case("Fig. 6", "fc:100", (100.0,), 99.0, 1.00, 0, "text"),
    Case("Fig. 6", "mesh:10x10", (100.0,), 3.94, 5.52, 0, "text"),
    Case("Fig. 19", "mesh:5x5", (100.0,), 0, 0, 0, "text: mean 3.73x (ILP), 3.17x (greedy)", quick=True),
    Case("Fig. 19", "dragonfly:5x4", (400.0, 200.0), 0, 0, 0, "text: the same mean", quick=True),
    Case("Fig. 19", "switch_switch:8x4", (300.0, 25.0), 0, 0, 0, "text: the same mean", quick=True),
    *(
        Case("Fig. 21", "mesh:10x10", (100.0,), 4.51, 11.00, 0, f"{n} chunks", size_bytes=100 * n << 17)
        for n in (1, 2, 4, 8, 16, 32)
    ),
    Case("Fig. 21", "mesh:10x10", (100.0,), 4.51, 11.00, 57.87, "64 chunks", size_bytes=6400 << 17),
)


def baselines(case: Case, network: Network) -> tuple[float, float]:
    """Return the seconds of the ring and of direct sends; 0 for a ring that the paper does not run."""
    collectives = case.asked(network.ranks)
    if case.in_steps:
        pairs = np.array([pair for one in collectives for pair in pairs_of(one)]).T
        return 0.0, Routed(network, CHUNK_BYTES).direct_s(*pairs)
    members = collectives[0].members
    routed = Routed(network, -(-case.size_bytes // len(members)))
    pairs = np.array(list(pairs_of(CollectiveRequest("all_gather", members=members)))).T
    return 2 * routed.ring_s(members), 2 * routed.direct_s(*pairs)


def pairs_of(one: CollectiveRequest) -> Iterator[tuple[int, int]]:
    """Yield (from, to) of each chunk that direct sends move."""
    for a in one.members:
        for b in one.members:
            towards = {"broadcast": a == one.root, "reduce": b == one.root, "gather": b == one.root}
            if a != b and towards.get(one.kind, True):
                yield a, b


def halves_s(network: Network, members: tuple[int, ...], share_bytes: int) -> float:
    """Return the time of a reduce_scatter and then an all_gather, each at its bound."""
    kinds: tuple[tuple[Kind, int], ...] = (("reduce_scatter", len(members)), ("all_gather", 1))
    shapes = (collective(kind, network.ranks, chunks, 0, members) for kind, chunks in kinds)
    return sum(
        max(bound.time_s for bound in bounds(network, shape, share_bytes, fluid=True)) for shape in shapes
    )


def best(case: Case, network: Network) -> tuple[Outcome, str, float]:
    """Return (outcome, method, CPU seconds) of the best schedule found without integer programs."""
    asked = Request(
        network,
        case.kind,
        size_bytes=None if case.in_steps else case.size_bytes,
        chunk_bytes=CHUNK_BYTES if case.in_steps else None,
        chunks=1 if case.in_steps else None,
        collectives=case.asked(network.ranks),
        time_limit_s=TIME_LIMIT_S if network.ranks > MANY_RANKS else None,
        solving=False,
        jobs=0,
    )
    begun_s = time.process_time()
    found = synthesize(asked).schedule
    used_s = time.process_time() - begun_s
    if found.outcome is None or check(found):
        sys.exit(f"{case.where} {case.spec}: a wrong schedule")
    return found.outcome, found.method, used_s


def published(case: Case) -> str:
    """Return a line: ring and direct sends over TACOS-Greedy as published, and over each other."""
    network = case.unwound()
    members = case.asked(network.ranks)[0].members
    shape = Request(network, case.kind, collectives=case.asked(network.ranks)).shape(1)
    ring_s, direct_s = baselines(case, network)
    begun_s = time.process_time()
    made = serve(tacos_greedy.synthesize, network, shape, case.size_bytes // len(members), others=())
    used_s = time.process_time() - begun_s
    if check(made):
        sys.exit(f"{case.where} {case.spec}: a wrong schedule of {made.method}")
    found_s = replay(made).time_s
    quotient = case.direct / case.ring if case.ring else 0.0
    return (
        f"{case.where:10}{case.spec:18} ring / published{multiple(ring_s / found_s)} (paper"
        f"{multiple(case.ring)}), direct / published{multiple(direct_s / found_s)} (paper"
        f"{multiple(case.direct)}), direct / ring{multiple(direct_s / ring_s)} (paper{multiple(quotient)}), "
        f"found in {used_s:.3g} s  {case.remark}"
    )


def greedy_s(case: Case, network: Network) -> float:
    """Return the CPU seconds of one run of greedy with one chunk a share; of ``paths`` for the gather."""
    collectives = case.asked(network.ranks)
    members = collectives[0].members
    shape = Request(network, case.kind, collectives=collectives).shape(1)
    chunk_bytes = CHUNK_BYTES if case.in_steps else case.size_bytes // len(members)
    method = paths.synthesize if case.kind == "gather" else greedy.synthesize
    begun_s = time.process_time()
    serve(method, network, shape, chunk_bytes, others=(paths.synthesize,))
    return time.process_time() - begun_s


def solved(case: Case, network: Network) -> tuple[float, float]:
    """Return the seconds of TACOS-ILP's and the TACCL-like baseline's schedules, found within a minute each.

    0 stands for no schedule.
    """
    if network.ranks > MOST_SOLVED_RANKS:
        return 0.0, 0.0
    collectives = case.asked(network.ranks)
    shape = Request(network, case.kind, collectives=collectives).shape(1)
    chunk_bytes = CHUNK_BYTES if case.in_steps else case.size_bytes // len(collectives[0].members)
    found = []
    for method in (ilp, taccl):
        try:
            made = serve(
                method.synthesize,
                network,
                shape,
                chunk_bytes,
                relays=True,
                others=(paths.synthesize,),
                time_limit_s=SOLVING_S,
            )
        except NotApplicableError:
            found.append(0.0)
            continue
        if check(made):
            sys.exit(f"{case.where} {case.spec}: a wrong schedule of {made.method}")
        # A schedule that another method found counts only if the integer program proved it optimal.
        proven = made.outcome is not None and made.outcome.status == "optimal"
        own = made.method in ("ilp", "taccl") or proven
        found.append(replay(made).time_s if own else 0.0)
    return found[0], found[1]


def by_mechanism(case: Case, network: Network, mechanism: Mechanism, limit_s: float) -> str:
    """Return a line: the time by one of TACOS-ILP's mechanisms alone, in percent of the bound."""
    shape = Request(network, case.kind, collectives=case.asked(network.ranks)).shape(1)
    chunk_bytes = case.size_bytes // network.ranks
    begun_s = time.perf_counter()
    made = ilp.synthesize(network, shape, chunk_bytes, time_limit_s=limit_s, mechanism=mechanism)
    took_s = time.perf_counter() - begun_s
    if check(made):
        sys.exit(f"{case.where} {case.spec}: a wrong schedule of {mechanism}")
    found = made.outcome
    assert found is not None
    # Name the method of the shortest paths if the program finds nothing.
    return (
        f"{case.where:10}{case.spec:18}{mechanism:31}{found.time_s * 1e6:10.1f}us"
        f"{found.percent_of_optimal:7.1f}%  {made.method}, one chunk a share, in {took_s:.0f} s"
    )


@dataclass(frozen=True)
class Asked:
    """The command line: cases, whether to run integer programs, seconds of each mechanism (0: none).

    With ``published`` only TACOS-Greedy as published and its baselines run.
    """

    cases: list[Case]
    programs: bool
    mechanisms_s: float
    published: bool


def seconds_of(text: str) -> float:
    """Return a number above 0; NaN for anything else."""
    try:
        return float(text) or float("nan")
    except ValueError:
        return float("nan")


def asked_of(arguments: list[str]) -> Asked:
    """Return the parsed command line: small cases with --quick, those whose name has FILTER."""
    words, limit_s = list(arguments), 0.0
    if BY_MECHANISM in words:
        at = words.index(BY_MECHANISM)
        limit_s, words[at : at + 2] = seconds_of("".join(words[at + 1 : at + 2])), []
    quick, programs, as_published = "--quick" in words, PROGRAMS in words, PUBLISHED in words
    words = [word for word in words if word not in ("--quick", PROGRAMS, PUBLISHED)]
    if len(words) > 1 or any(word.startswith("-") for word in words) or not limit_s >= 0:
        sys.exit(
            f"usage: tacos_tables.py [--quick] [{PROGRAMS}] [{PUBLISHED}] [{BY_MECHANISM} SECONDS] [FILTER], "
            f"found {' '.join(arguments)}"
        )
    wanted = "".join(words)
    found = [
        case
        for case in CASES
        if wanted in f"{case.where} {case.spec} {case.remark}" and (case.quick or not quick)
    ]
    return Asked(found, programs, limit_s, as_published)


def row(case: Case, *, programs: bool) -> str:
    """Return one line of the table, measured."""
    network = case.network()
    outcome, method, used_s = best(case, network)
    once_s = greedy_s(case, network)
    halves = 0.0
    if not case.in_steps:
        members = case.asked(network.ranks)[0].members
        halves = halves_s(network, members, case.size_bytes // len(members)) / outcome.time_s
    ring, direct = (peer_s / outcome.time_s for peer_s in baselines(case, network))
    kind = "three at once" if case.collectives else case.kind
    found = solved(case, network) if programs else (0.0, 0.0)
    peers = [peer_s / outcome.time_s for peer_s in found]
    multiples = "".join(map(multiple, (halves, ring, case.ring, direct, case.direct, *peers, case.taccl)))
    return (
        f"{case.where:10}{case.spec:18}{kind:14}{method[:16]:17}{outcome.time_s * 1e6:10.1f}us"
        f"{outcome.percent_of_optimal:7.1f}%{multiples}{seconds(used_s)}{seconds(once_s)}"
        f"{seconds(case.paper_s)}{multiple(case.paper_s / once_s)}  {case.remark}"
    )


def multiple(value: float) -> str:
    """Return ``value`` times, or a dash for 0."""
    return f"{value:8.{2 if value < 1000 else 0}f}x" if value else f"{'-':>9}"


def seconds(value: float) -> str:
    """Return ``value`` in a cell, or a dash for 0."""
    return f"{value:9.4g}s" if value else f"{'-':>10}"


def main(*arguments: str) -> None:
    """Print a row for each requested case."""
    asked = asked_of(list(arguments))
    if asked.published:
        for case in asked.cases:
            if not case.in_steps:
                print(published(case), flush=True)
        return
    print(
        f"{'where':10}{'network':18}{'collective':14}{'method':17}{'ours':>12}{'bound':>8}{'halves':>9}"
        f"{'ring':>9}{'paper':>9}{'direct':>9}{'paper':>9}{'ilp':>9}{'taccl':>9}{'paper':>9}{'auto':>10}{'greedy':>10}{'paper':>10}{'ratio':>9}"
        "  remark"
    )
    if asked.cases:
        warm()
        greedy_s(CASES[0], CASES[0].network())
    for case in asked.cases:
        print(row(case, programs=asked.programs), flush=True)
        for mechanism in MECHANISMS if asked.mechanisms_s and case.where == "Table II" else ():
            print(by_mechanism(case, case.network(), mechanism, asked.mechanisms_s), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
