"""The request to the planner, and how its buffer is cut into chunks."""

from __future__ import annotations

from dataclasses import dataclass, replace

from probes.base import UsageError
from synth.collective import Collective, Kind
from synth.network import Network
from synth.networks import Failures, without
from synth.portfolio.collective_request import CollectiveRequest, counted, divided, surviving
from synth.tacos_ilp import Mechanism

__all__ = ["Request", "cut", "cut_again"]


@dataclass(frozen=True)
class Request:
    """A request for ``size_bytes`` (chunks are chosen), for ``chunk_bytes`` and ``chunks``, or for ``sizes``.

    - ``without``: failures of the network; the other ranks take part.
    - ``collectives``: replace ``kind`` and ``root`` for subsets of ranks or several collectives at once.
    - ``size_bytes``: the buffer of each collective, as nccl-tests counts it.
    - ``chunks``: the chunks that each rank starts with.
    - ``time_limit_s``: return the best schedule found by then, or the first one after it.
    - ``jobs``: the most parallel processes (0: none); the result does not depend on it.
    - ``solver``: the solver of integer programs, "cbc" or "highs"; without ``solving``, auto uses none.
    - ``sub_collectives``: AdapCC's M.
    - ``time_step_s``, ``mechanism``: TACOS-ILP's time step, and its way to divide large problems.
    - ``trees``: each chunk must travel along a tree or path, as relays require.
    - ``listed``: the caller needs all sends one by one.
    - ``quick``: try few methods, the most promising first.
    - ``predicted``: decide by the prediction of a run on ranks instead of the simulation of links; None: do
      so if ranks were measured and the method is auto.
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

    @property
    def decided_by_prediction(self) -> bool:
        """Whether the prediction of a run decides between schedules."""
        if self.predicted is not None:
            return self.predicted
        return self.method == "auto" and self.network.measured

    @property
    def asked(self) -> tuple[CollectiveRequest, ...]:
        return self.collectives or (CollectiveRequest(self.kind, self.root),)

    @property
    def whole(self) -> CollectiveRequest | None:
        """The collective, if it is one of all ranks; None for several, a subset of ranks or a custom one."""
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
        """Return the collectives with ``split`` chunks an owner, or as many as ``chunks`` says."""
        if self.chunks is not None:
            return counted(self.asked, self.network.ranks, self.chunks)
        return divided(self.asked, self.network.ranks, split)


def cut(request: Request, split: int) -> tuple[Collective, int]:
    """Return the collective with ``split`` chunks an owner, and the bytes of a chunk.

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
