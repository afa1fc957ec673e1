"""The attempts of the portfolio: the registry of methods, and the chunk sizes that each is tried with."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from probes.base import UsageError, meant, quoted
from synth.collective import Collective
from synth.demands import serves as is_demand, synthesize as meet_demand
from synth.methods import (
    adapcc,
    aligned,
    bidirectional,
    bine,
    circulant,
    direct,
    doubling,
    forest,
    greedy,
    hierarchical,
    host_halving,
    ilp,
    nvls,
    paths,
    ring,
    scatter_allgather,
    tree,
    trivance,
    two_step,
)
from synth.network import Network
from synth.networks import found_symmetry
from synth.portfolio.rank_subsets import serve
from synth.portfolio.request import Request, cut
from synth.published import synthesizer
from synth.schedules import Schedule
from synth.scheduling import block_exchange, gossip, shared_sums, stars, symmetric_search

__all__ = [
    "METHODS",
    "SMALLEST_CHUNK_BYTES",
    "Plan",
    "deliveries",
    "least_sends",
    "library_plans",
    "method_of",
    "plans",
    "smallest_bytes",
]

# A smaller chunk rarely arrives sooner, and each message costs its sender time.
SMALLEST_CHUNK_BYTES = 4096
# With at most _FEW_DELIVERIES (arrivals of a chunk at a rank), chunks may be smaller than
# SMALLEST_CHUNK_BYTES, because small chunks are forwarded sooner. The smallest chunks occupy a link for 2 %
# of its latency.
_FEW_DELIVERIES = 80_000
_HOLDS_BRIEFLY = 0.02
# Chunks are cut no smaller than this for any method.
_SMALLEST_EXCHANGED_BYTES = 64
# If the request fixes the chunks, exchanges of at most this many deliveries are always tried.
_FEW_EXCHANGED = 1_000
# Limits for broadcast and reduce: chunks of the root's buffer, and the factor on ``most_sends``. All chunks
# leave or enter the root over the same links, and small ones fill the pipeline sooner.
_MOST_OF_ONE = 4096
_SENDS_OF_ONE = 3
# Above _CLASSIC_DELIVERIES auto tries only _LARGE: other methods mostly lose to the greedy search there.
# Above _PATHS_DELIVERIES auto tries "paths" only for collectives in _SCATTERED: for all others, which spread
# or sum along trees, other methods grow the trees much faster.
_CLASSIC_DELIVERIES = 100_000
_PATHS_DELIVERIES = 10_000
# Paths of at most this many deliveries are tried with so many seeds in auto. Some come 2 to 8 % nearer to the
# bound, and those of more deliveries take too long.
_FEW_PATHS, _SEEDS_OF_PATHS = 2500, 4
# The most deliveries of the method "demand". It takes no search; most of its time goes into the proof.
_MOST_OF_DEMANDS = 550_000
# On more ranks, other searches for uneven collectives take minutes (benchmarks/demands.py) and are left out.
_MOST_RANKS_OF_SEARCHES = 32
# The most sends of "greedy" there, which take a few seconds: a giant block on a clique needs small chunks.
_MOST_OF_UNEVEN = 600_000
# A ring that fills all ports may have this many sends, because it is built without a search.
_MOST_RING_SENDS = 550_000
# The names of methods in other tools and papers.
_OTHER_NAMES = {
    "tacos": "TACOS's search is 'greedy' (as published: 'tacos_published'), its integer programs are 'ilp' "
    "(as published: 'tacos_ilp_published');",
    "milp": "did you mean 'ilp'?",
    "rabenseifner": "did you mean 'halving_doubling'?",
    "recursivedoubling": "did you mean 'doubling' or, for an all_reduce, 'halving_doubling'?",
}
# The algorithms of libraries, which need no search.
_LIBRARY = (
    "ring",
    "bidirectional",
    "direct",
    "all_pairs",
    "doubling",
    "halving_doubling",
    "tree",
    "hierarchical",
    "two_step",
    "three_step",
)
# The methods that send a rank many chunks at a time, and the most deliveries for which they are merged: those
# of 512 ranks take a few seconds.
_IN_FEW_MESSAGES = ("doubling", "halving_doubling", "two_step")
_MERGED_DELIVERIES = 600_000
_LARGE = (
    "demand",
    "nvls",
    "greedy",
    "circulant",
    "stars",
    "symmetric",
    "forest",
    "paths",
    "aligned",
    "trivance",
)
# If translations carry any rank into any other, auto skips these methods, but not for _SCATTERED, and not for
# at most _FEW_OF_ROOT deliveries from or to one root. The 605 cells of benchmarks/sizes.py are as fast so.
_OF_UNLIKE_RANKS, _FEW_OF_ROOT = ("paths", "forest", "adapcc"), 1000
_ROOTED = ("broadcast", "reduce")
_SCATTERED = ("all_to_all", "all_to_next", "scatter", "gather", "custom")
# Seconds for all integer programs of a search: of a method requested by name, and of auto.
_SOLVING_S = 60.0
_SOLVING_IN_AUTO_S = 5.0
# In auto, a solver other than ilp runs only if the best schedule takes at least this many times the bound.
_WORTH_SOLVING = 1.02
# Paths for single chunks are sought after a demand plan that takes at least this many times the bound, as on
# networks without hosts, where the plan has no relays.
_WORTH_PATHS = 1.1


@dataclass(frozen=True)
class Method:
    """One way to make a schedule, and the chunk counts that it is tried with.

    The chunks of each owner grow from 1 by the factor ``step`` to ``most_split``, while a chunk has at least
    4 KiB / ``finer`` and there are at most ``most_sends`` deliveries. ``chunk_counts``, if set, lists the
    chunks of the whole buffer instead. ``relays``: the method serves subsets of ranks itself, and other ranks
    may relay. ``solves``: it solves integer programs within a time limit. ``counts``: it solves small integer
    programs within a limit of nodes. ``exchanges``: its chunks do not travel along trees. ``ordered``: it
    keeps the order of sums if the collective fixes one. ``own_size``: its schedules are proven only at the
    size that they were made for. ``suits`` tells whether auto should try it, and ``pays`` whether auto should
    try it with a given chunk size.
    """

    synthesize: Callable[..., Schedule]
    most_sends: int = 50_000
    most_split: int = 64
    step: int = 2
    finer: int = 1
    relays: bool = False
    solves: bool = False
    counts: bool = False
    exchanges: bool = False
    ordered: bool = False
    own_size: bool = False
    chunk_counts: Callable[[Network], Sequence[int]] | None = None
    suits: Callable[[Network, Collective], bool] = lambda network, shape: True
    pays: Callable[[Network, Collective, int], bool] = lambda network, shape, chunk_bytes: True


def _never(network: Network, shape: Collective) -> bool:
    """Tell auto not to try a method."""
    return False


METHODS: dict[str, Method] = {
    "demand": Method(meet_demand, most_sends=_MOST_OF_DEMANDS, suits=is_demand),
    "bine": Method(
        bine.synthesize,
        most_sends=600_000,
        exchanges=True,
        chunk_counts=bine.chunk_counts,
        suits=shared_sums.suits,
        pays=shared_sums.pays,
    ),
    "trivance": Method(
        trivance.synthesize,
        most_sends=600_000,
        exchanges=True,
        chunk_counts=trivance.chunk_counts,
        suits=shared_sums.suits,
        pays=shared_sums.trees_pay,
    ),
    "exchange": Method(
        block_exchange.synthesize,
        exchanges=True,
        ordered=True,
        chunk_counts=block_exchange.chunk_counts,
        suits=block_exchange.suits,
        pays=block_exchange.pays,
    ),
    "aligned": Method(
        aligned.synthesize,
        relays=True,
        exchanges=True,
        ordered=True,
        suits=lambda network, shape: shape.sum_order == "aligned",
    ),
    "nvls": Method(nvls.synthesize, most_sends=140_000, suits=nvls.suits),
    "circulant": Method(circulant.synthesize, most_sends=550_000, suits=circulant.suits),
    "stars": Method(stars.synthesize, most_sends=600_000, suits=stars.suits),
    "symmetric": Method(
        symmetric_search.synthesize, most_sends=600_000, finer=4, suits=symmetric_search.suits
    ),
    "greedy": Method(greedy.synthesize, most_sends=100_000),
    "gossip": Method(
        gossip.synthesize,
        relays=True,
        exchanges=True,
        own_size=True,
        chunk_counts=gossip.chunk_counts,
        suits=gossip.suits,
        pays=gossip.pays,
    ),
    "ring": Method(ring.synthesize),
    "bidirectional": Method(bidirectional.synthesize),
    "direct": Method(direct.synthesize),
    "all_pairs": Method(direct.all_pairs),
    "doubling": Method(doubling.synthesize),
    "halving_doubling": Method(doubling.halving_doubling),
    "tree": Method(tree.synthesize),
    "hierarchical": Method(hierarchical.synthesize),
    # Its messages are few only if they are merged, as in files for runtimes (`synth.portfolio.loadable`).
    "host_halving": Method(host_halving.synthesize, most_sends=600_000, suits=_never),
    "two_step": Method(two_step.synthesize),
    "three_step": Method(two_step.three_step),
    "scatter_allgather": Method(
        scatter_allgather.synthesize,
        most_sends=40_000,
        step=4,
        finer=16,
        suits=scatter_allgather.suits,
        pays=scatter_allgather.pays,
    ),
    "paths": Method(paths.synthesize, relays=True),
    "forest": Method(forest.synthesize, most_sends=1_100_000, most_split=1024, step=4, counts=True),
    "ilp": Method(ilp.synthesize, most_sends=300, relays=True, solves=True, suits=ilp.suits),
    "adapcc": Method(adapcc.synthesize, step=4, relays=True, solves=True, suits=adapcc.suits),
    "adapcc_published": Method(
        synthesizer("adapcc_published"), step=64, solves=True, exchanges=True, suits=_never
    ),
    "taccl": Method(synthesizer("taccl"), most_sends=2000, relays=True, solves=True, suits=_never),
    "tacos_published": Method(synthesizer("tacos_published"), most_sends=10_000, suits=_never),
    "tacos_ilp_published": Method(
        synthesizer("tacos_ilp_published"), most_split=1, relays=True, solves=True, suits=_never
    ),
}


@dataclass(frozen=True)
class Plan:
    """One attempt: a method with its options, on a collective in chunks of ``chunk_bytes``."""

    name: str
    method: Method
    shape: Collective
    chunk_bytes: int
    options: dict[str, object]
    variant: int = 0

    def pointless(self, request: Request, best: Schedule | None, ratio: float, solving_s: float) -> bool:
        """Return whether auto should skip this plan because it has little to gain or its solver no time.

        ``ratio`` is the time of the best schedule over the bound, ``solving_s`` the time spent on solvers.
        """
        if request.method == "auto" and best is not None and best.method == "demand":
            return ratio < _WORTH_PATHS
        if request.method != "auto" or not self.method.solves or best is None:
            return False
        # If the request leaves the chunk size open, an optimum for one chunk size gains nothing.
        any_chunk = request.chunk_bytes is None and self.name == "ilp"
        close = ratio < (1.0 if self.name == "ilp" else _WORTH_SOLVING)
        return any_chunk or close or solving_s > _SOLVING_IN_AUTO_S / 2

    def run(self, request: Request, taken_s: float, left: int) -> Schedule:
        """Return the schedule of this attempt; ``left`` attempts share the time left after ``taken_s``.

        All plans of a method have the same seeds, so that its caches serve them all.
        """
        limits: dict[str, object] = {"solver": request.solver} if self.method.counts else {}
        if self.method.solves:
            share_s = max(0.5, (request.time_limit_s or _SOLVING_S) - taken_s) / left
            most_s = _SOLVING_IN_AUTO_S / 2 if request.method == "auto" else share_s
            limits = {"solver": request.solver, "time_limit_s": min(share_s, most_s) / _calls(self.shape)}
        return serve(
            self.method.synthesize,
            request.network,
            self.shape,
            self.chunk_bytes,
            relays=self.method.relays,
            others=(greedy.synthesize, paths.synthesize),
            seed=request.seed + self.variant,
            **limits,
            **self.options,
        )


def method_of(word: str) -> str:
    """Return the method that a word names: "TwoStep" is two_step; "auto" and "periodic" are known, too.

    Raises UsageError for an unknown word.
    """
    known = ("auto", "periodic", *METHODS)
    plain = re.sub(r"[_\s-]", "", word.lower())
    for name in known:
        if name.replace("_", "") == plain:
            return name
    close = _OTHER_NAMES.get(plain) or meant(word, known)
    hint = f"{close + ' ' if close else ''}known: {', '.join(known)}"
    raise UsageError(f" {quoted(word)}: unknown method", hint=hint, argument="method")


def plans(request: Request) -> Iterator[Plan]:
    """Yield every attempt worth trying, cheap ones first."""
    names, uneven = list(METHODS) if request.method == "auto" else [method_of(request.method)], False
    if request.method == "auto" and request.network.ranks > _MOST_RANKS_OF_SEARCHES:
        shape = request.shape()
        if is_demand(request.network, shape):
            names = ["demand", "paths"]
        elif shape.blocks is not None:
            # Greedy finds no relays for chunks of one source and one target, and takes minutes.
            single = (shape.source_of() >= 0) & (shape.target_of() >= 0)
            uneven = not single.all()
            names = ["ring", "greedy", "paths"] if uneven else ["paths"]
    large_rings = (
        request.method == "auto"
        and deliveries(request.shape()) > _CLASSIC_DELIVERIES
        and ring.fills(request.network, request.shape())
    )
    if request.reproducible:
        if request.method != "auto" and not METHODS[names[0]].ordered:
            known = ", ".join(name for name, method in METHODS.items() if method.ordered)
            raise UsageError(f" {names[0]}: keeps no order of sums; {known} do", argument="method")
        names = [name for name in names if METHODS[name].ordered]
    for name in names:
        method = METHODS[name]
        if name == "greedy" and uneven:
            method = replace(method, most_sends=_MOST_OF_UNEVEN)
        if name == "greedy" and large_rings:
            yield from _large_rings(request)
        for shape, chunk_bytes in _shapes(request, method):
            large = deliveries(shape) > _CLASSIC_DELIVERIES and request.method == "auto"
            if large and name not in _LARGE:
                continue
            if name == "paths" and request.method == "auto" and _too_many_paths(request, shape):
                continue
            unsuited = not method.suits(request.network, shape) or (method.solves and not request.solving)
            unsuited = unsuited or (method.exchanges and request.trees)
            unsuited = unsuited or (method.own_size and request.sweeping)
            # An option of a method is a request to try it.
            skippable = name in _OF_UNLIKE_RANKS and not _options(request, name)
            unsuited = unsuited or (skippable and _symmetry_replaces(request, shape))
            if request.method == "auto" and (
                unsuited or not _is_worth_trying(request, method, shape, chunk_bytes)
            ):
                continue
            variants: list[dict[str, object]] = [_options(request, name)]
            if name == "greedy":
                tried = greedy.policies(request.network)[: _most_policies(shape)]
                variants = [{"policy": policy} for policy in tried]
                counts = _centre_counts(request.network, shape, chunk_bytes)
                variants += [{"policy": tried[0], "centres": count} for count in counts]
            if name == "paths" and _gains_by_seeds(request, shape):
                variants *= _SEEDS_OF_PATHS
            for variant, options in enumerate(variants):
                yield Plan(name, method, shape, chunk_bytes, options, variant)


def _is_worth_trying(request: Request, method: Method, shape: Collective, chunk_bytes: int) -> bool:
    """Return whether auto should try the method; True for a few fixed chunks, which cannot hide latency."""
    if request.chunk_bytes is not None and deliveries(shape) <= _FEW_EXCHANGED:
        return True
    return method.pays(request.network, shape, chunk_bytes)


def _large_rings(request: Request) -> Iterator[Plan]:
    """Yield a ring with two chunks a rank, which hides latency, then one with a single chunk a rank."""
    method = replace(METHODS["ring"], most_sends=_MOST_RING_SENDS, most_split=2)
    for shape, chunk_bytes in reversed(list(_shapes(request, method))):
        yield Plan("ring", method, shape, chunk_bytes, {})


def _options(request: Request, name: str) -> dict[str, object]:
    """Return the options that the request sets for one method."""
    if name in ("adapcc", "adapcc_published") and request.sub_collectives is not None:
        return {"sub_collectives": request.sub_collectives}
    if name == "tacos_ilp_published":
        return {} if request.time_step_s is None else {"time_step_s": request.time_step_s}
    if name != "ilp":
        return {}
    options: dict[str, object] = {} if request.mechanism == "auto" else {"mechanism": request.mechanism}
    return options if request.time_step_s is None else options | {"time_step_s": request.time_step_s}


def library_plans(request: Request, *, merging: bool = False) -> Iterator[Plan]:
    """Yield the algorithms of libraries, each in the fewest chunks; an all_reduce also in a single chunk.

    Summing a short buffer at one rank takes fewer messages than summing a share at each rank. Those that
    deliver very many chunks are left out, unless messages can be merged (``merging``) and become few.
    """
    for name in _LIBRARY:
        most = _MERGED_DELIVERIES if merging and name in _IN_FEW_MESSAGES else _CLASSIC_DELIVERIES
        shapes = [next(_shapes(request, METHODS[name]))]
        if request.chunk_bytes is None and all(one.kind == "all_reduce" for one in request.asked):
            shapes += [cut(replace(request, chunks=1), 1)]
        for shape, chunk_bytes in shapes:
            if deliveries(shape) <= most:
                yield Plan(name, METHODS[name], shape, chunk_bytes, {})


def _too_many_paths(request: Request, shape: Collective) -> bool:
    spread = not any(one.kind in _SCATTERED for one in request.asked)
    return spread and deliveries(shape) > _PATHS_DELIVERIES


def _gains_by_seeds(request: Request, shape: Collective) -> bool:
    scattered = all(one.kind in _SCATTERED for one in request.asked)
    return request.method == "auto" and scattered and deliveries(shape) <= _FEW_PATHS


def _symmetry_replaces(request: Request, shape: Collective) -> bool:
    """Return whether methods of _OF_UNLIKE_RANKS gain nothing: translations carry any rank into any other.

    They do gain for few chunks from or to one root, because mixtures take such plans, and where another
    schedule than the fastest over links may be kept.
    """
    whole = request.whole
    if request.trees or not request.decided_over_links or whole is None or whole.kind in _SCATTERED:
        return False
    if whole.kind in _ROOTED and deliveries(shape) <= _FEW_OF_ROOT:
        return False
    found = found_symmetry(request.network)
    return found is not None and found.network.translations == request.network.ranks


def _calls(shape: Collective) -> int:
    """Return how often ``serve`` calls a method.

    A method is called once, or twice on a subset of ranks, because relays may help. Each of several parts is
    planned twice.
    """
    each = 2 if shape.members else 1
    return 2 * sum(map(_calls, shape.parts)) if shape.parts else each


def _centre_counts(network: Network, shape: Collective, chunk_bytes: int) -> list[int]:
    """Return how many ranks may own the sums of a short all_reduce; [] if greedy shall choose no fewer."""
    if shape.kind != "all_reduce" or not shape.whole or deliveries(shape) > _FEW_DELIVERIES:
        return []
    return greedy.centre_counts(network, chunk_bytes) if gossip.pays(network, shape, chunk_bytes) else []


def _most_policies(shape: Collective) -> int:
    """Return how many greedy policies to try: all on small problems, one on large ones."""
    most = 1_000_000 if shape.kind in _ROOTED else 400_000
    return max(1, min(len(greedy.POLICIES), most // deliveries(shape)))


def deliveries(shape: Collective) -> int:
    """Return the least number of (chunk, rank) arrivals of any schedule."""
    return max(1, int(max(shape.sources.sizes().sum(), shape.targets.sizes().sum())))


def least_sends(shape: Collective) -> int:
    """Return the least number of sends of any schedule.

    A chunk takes one send less than it has contributing ranks, and one for each further rank that receives
    it: 2 (n - 1) for an all_reduce of n ranks, as in one-way gossip.
    """
    each = shape.sources.sizes().astype(np.int64) + shape.targets.sizes().astype(np.int64) - 2
    moves = (each == 0) & (shape.sources.only() != shape.targets.only())
    return int(np.maximum(each, moves).sum())


def _shapes(request: Request, method: Method) -> Iterator[tuple[Collective, int]]:
    if request.chunk_bytes is not None:
        yield request.shape(), request.chunk_bytes
        return
    if method.chunk_counts is not None and all(one.kind == "all_reduce" for one in request.asked):
        for chunks in method.chunk_counts(request.network):
            found, chunk_bytes = cut(replace(request, chunks=chunks), 1)
            if chunks == 1 or chunk_bytes >= _SMALLEST_EXCHANGED_BYTES:
                yield found, chunk_bytes
        return
    rooted = all(one.kind in _ROOTED for one in request.asked)
    most = _MOST_OF_ONE if rooted else method.most_split
    smallest_of_few = smallest_bytes(request.network)
    split = 1
    while split <= most:
        found, chunk_bytes = cut(request, split)
        arrivals = deliveries(found)
        many = arrivals > method.most_sends * (_SENDS_OF_ONE if rooted else 1)
        few = arrivals <= _FEW_DELIVERIES
        smallest = smallest_of_few if few else SMALLEST_CHUNK_BYTES
        small = chunk_bytes < max(smallest / method.finer, _SMALLEST_EXCHANGED_BYTES)
        if split > 1 and (small or many):
            return
        yield found, chunk_bytes
        split *= method.step


def smallest_bytes(network: Network) -> float:
    """Return the smallest chunk worth trying: a smaller one would not arrive notably sooner.

    If the network queues (`Network.queues`), it is SMALLEST_CHUNK_BYTES: ranks are CPUs, and each message
    costs them time that alpha does not include.
    """
    if network.queues or not network.links:
        return SMALLEST_CHUNK_BYTES
    brief = _HOLDS_BRIEFLY * float(np.median(network.alpha_s / network.beta_s_per_byte))
    return min(SMALLEST_CHUNK_BYTES, max(_SMALLEST_EXCHANGED_BYTES, brief))
