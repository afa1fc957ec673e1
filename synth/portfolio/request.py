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
    """A request, for ``size_bytes`` (chunks are chosen), ``chunk_bytes`` and ``chunks``, or ``sizes``.

    ``without`` lists the failures of the network: the other ranks take part. ``collectives``, on some of the
    ranks or several at once, are taken instead of ``kind`` and ``root``.
    ``size_bytes`` is nccl-tests' size, of each of them; ``chunks`` is how many chunks each rank starts
    with. After ``time_limit_s`` the best so far is taken, or else the first there is. Up to ``jobs``
    processes (0: never any) work side by side where that is worth it; what is chosen does not depend on it.
    ``solver`` is the one of integer programs, "cbc" or "highs"; without ``solving`` auto asks none.
    ``sub_collectives`` is AdapCC's M, ``time_step_s`` TACOS-ILP's step of time and ``mechanism`` how it
    divides problems that are too large for one program. ``trees``: each chunk must go along trees or paths,
    as relays need it. ``listed``: whoever takes the schedule needs all its sends, one by one. ``quick``: few
    methods are asked, the most promising first. ``predicted``: the prediction of a run on ranks decides, not
    the simulation of links; None: it does where ranks were measured and every method is asked.
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
        """The one collective that is asked of all ranks; None for several, or of some ranks or chunks."""
        first, *others = self.asked
        return None if others or first.members or first.sets else first

    def surviving(self) -> Request:
        """Return the same on the network that failures leave, among its ranks.

        Raises UsageError if none is left.
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

    Raises UsageError where the chunks of a custom collective would have less than a byte each.
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
    """Return the collective ``shape`` of the request with each chunk in so many parts, and the bytes
    of a part.
    """
    if all(one.kind == "all_reduce" for one in request.asked):
        return cut(replace(request, chunks=shape.chunks // len(request.asked) * parts), 1)
    return cut(request, shape.chunks // request.shape().chunks * parts)
