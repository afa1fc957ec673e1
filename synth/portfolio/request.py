"""The request to the planner: its collectives, and how their buffer is cut into chunks."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from probes.base import UsageError
from synth.collective import ROOTED, Collective, Kind, collective, several
from synth.network import Network
from synth.networks import Failures, without
from synth.tacos_ilp import Mechanism

__all__ = ["CollectiveRequest", "Request", "counted", "cut", "cut_again", "divided", "surviving"]

# Collectives whose inputs hold chunks for every rank (in an all_reduce, its share of the sum).
_OWNED = ("all_reduce", "reduce_scatter", "scatter", "all_to_all")
# If exactly equal buffers take more chunks than this, buffers are made about equal.
_MOST_MULTIPLES = 4096


@dataclass(frozen=True)
class CollectiveRequest:
    """One collective on ``members`` (empty: all ranks); ``sets`` is a custom one with chunks not yet cut."""

    kind: Kind
    root: int = 0
    members: tuple[int, ...] = ()
    sets: Collective | None = None


@dataclass(frozen=True)
class Request:
    """A request for ``size_bytes`` (chunks are chosen), ``chunk_bytes`` and ``chunks``, or ``sizes``.

    - ``without``: failures of the network; the other ranks take part.
    - ``collectives``: replace ``kind`` and ``root`` for subsets of ranks or several collectives at once.
    - ``size_bytes``: the buffer of each collective, as nccl-tests counts it.
    - ``chunks``: the chunks that each rank starts with.
    - ``time_limit_s``: return the best schedule found by then, or the first one after it.
    - ``jobs``: the most parallel processes (0: none); the result does not depend on it.
    - ``solver``: the solver of integer programs, "cbc" or "highs"; without ``solving``, auto uses none.
    - ``sweeping``: the schedules serve other sizes, too.
    - ``sub_collectives``: AdapCC's number of sub-collectives, M in its paper.
    - ``time_step_s``, ``mechanism``: TACOS-ILP's time step, and its way to divide large problems.
    - ``trees``: each chunk must travel along a tree or path, as relays require.
    - ``listed``: the caller needs all sends one by one.
    - ``quick``: try few methods, the most promising first.
    - ``runtime``: what must be able to load the schedule: "msccl", "rccl", "mscclpp"; "" for nothing.
    - ``predicted``: decide by the prediction of a run on ranks instead of the simulation of links; None: do
      so if ranks were measured and the method is auto.
    - ``reproducible``: each sum has one order, the aligned tree of its ranks (`synth.collective`), whatever
      the size, the network and its failures are.
    """

    network: Network
    kind: Kind
    size_bytes: int | None = None
    chunk_bytes: int | None = None
    chunks: int | None = None
    root: int = 0
    method: str = "auto"
    seed: int = 0
    time_limit_s: float | None = None
    collectives: tuple[CollectiveRequest, ...] = ()
    solver: str = "cbc"
    solving: bool = True
    sweeping: bool = False
    jobs: int = 1
    sub_collectives: int | None = None
    time_step_s: float | None = None
    mechanism: Mechanism = "auto"
    trees: bool = False
    predicted: bool | None = None
    sizes: tuple[int, ...] = ()
    without: Failures | None = None
    listed: bool = False
    quick: bool = False
    runtime: str = ""
    reproducible: bool = False

    @property
    def decided_by_prediction(self) -> bool:
        if self.predicted is not None:
            return self.predicted
        return self.method == "auto" and self.network.measured

    @property
    def decided_over_links(self) -> bool:
        """Whether links alone decide: no runtime has to load the schedule, and no prediction chooses it."""
        return not (self.runtime or self.decided_by_prediction)

    @property
    def asked(self) -> tuple[CollectiveRequest, ...]:
        return self.collectives or (CollectiveRequest(self.kind, self.root),)

    @property
    def whole(self) -> CollectiveRequest | None:
        """The collective if all ranks take part; None for several, a subset of ranks or custom sets."""
        first, *others = self.asked
        return None if others or first.members or first.sets else first

    def surviving(self) -> Request:
        """Return the same request on the network without its failures.

        Raises UsageError if the failures leave no rank, or take one that the collective needs.
        """
        if not self.without:
            return self
        left = without(self.network, self.without)
        asked = tuple(surviving(one, left.ranks, self.without.ranks) for one in self.asked)
        return replace(self, network=left, collectives=asked, without=None)

    def shape(self, split: int = 1) -> Collective:
        """Return the collectives with ``self.chunks`` chunks per rank, or else ``split`` chunks per owner."""
        if self.chunks is not None:
            found = counted(self.asked, self.network.ranks, self.chunks)
        else:
            found = divided(self.asked, self.network.ranks, split)
        return replace(found, sum_order="aligned") if self.reproducible else found


def cut(request: Request, split: int) -> tuple[Collective, int]:
    """Return the collective with ``split`` chunks per owner, and the bytes of a chunk.

    Raises UsageError if the chunks of a custom collective would have less than a byte each.
    """
    if request.size_bytes is None:
        raise UsageError("expected a size, or the size of a chunk")
    found = request.shape(split)
    least_bytes = found.total_bytes(1)
    if split == 1 and least_bytes > request.size_bytes and any(one.sets is not None for one in request.asked):
        raise UsageError(
            f": expected at least {least_bytes} bytes, one for each chunk at a rank, found "
            f"{request.size_bytes}",
            argument="size",
        )
    return found, max(1, -(-request.size_bytes // least_bytes))


def cut_again(request: Request, shape: Collective, parts: int) -> tuple[Collective, int]:
    """Return the collective ``shape`` with each chunk in ``parts`` parts, and the bytes of a part."""
    if all(one.kind == "all_reduce" for one in request.asked):
        return cut(replace(request, chunks=shape.chunks // len(request.asked) * parts), 1)
    return cut(request, shape.chunks // request.shape().chunks * parts)


def surviving(request: CollectiveRequest, ranks: int, failed: Collection[int]) -> CollectiveRequest:
    """Return the same collective among the ranks that have not failed.

    Raises UsageError if it needs a failed rank, or if none is left.
    """
    if not failed:
        return request
    if request.sets is not None:
        used = {rank for sets in (request.sets.sources, request.sets.targets) for rank in sets.rank.tolist()}
        if lost := sorted(used.intersection(failed)):
            raise UsageError(f": the collective needs rank {lost[0]}, which has failed", argument="without")
        return request
    left = tuple(rank for rank in (request.members or range(ranks)) if rank not in failed)
    chosen = request.root != (*request.members, 0)[0]
    if request.kind in ROOTED and request.root in failed and chosen:
        raise UsageError(f": rank {request.root} has failed", argument="root")
    if not left:
        raise UsageError(f": no rank of {request.kind} is left", argument="without")
    return replace(request, members=left, root=request.root if request.root in left else left[0])


def counted(requests: Sequence[CollectiveRequest], ranks: int, chunks_per_rank: int) -> Collective:
    """Return all requests as one collective; in each, a rank starts with ``chunks_per_rank`` chunks."""
    return several([_counted(request, ranks, chunks_per_rank) for request in requests])


def divided(requests: Sequence[CollectiveRequest], ranks: int, split: int) -> Collective:
    """Return all requests as one collective, with at least ``split`` chunks for each owner.

    All chunks have the same bytes. Collectives that move fewer chunks are cut more finely, so that all have
    about the same buffer size.
    """
    least = [_split(request, ranks, 1).total_bytes(1) for request in requests]
    common = math.lcm(*least)
    multiples = [common // each for each in least]
    if max(multiples) > _MOST_MULTIPLES:
        multiples = [max(1, max(least) // each) for each in least]
    return several(
        [_split(request, ranks, split * by) for request, by in zip(requests, multiples, strict=True)]
    )


def _split(request: CollectiveRequest, ranks: int, split: int) -> Collective:
    size = len(request.members) or ranks
    return _counted(request, ranks, split * size if request.kind in _OWNED else split)


def _counted(request: CollectiveRequest, ranks: int, chunks_per_rank: int) -> Collective:
    if request.sets is None:
        return collective(request.kind, ranks, chunks_per_rank, request.root, request.members)
    return request.sets.cut(chunks_per_rank)
