"""A hook for DDP whose gradients an adaptive session reduces (AdapCC, Sec. IV-C).

Late ranks relay, and their gradients follow in later parts, so that each sum includes all ranks. One decision
for all leaves out a rank that dies; the same DDP object goes on with the rest.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from exec.adaptive import Session, SessionEvent, Work
from exec.program import Array
from exec.training.backend import array_of, bytes_of
from exec.training.hooks.sessions import adaptive_session, dtype_of_tensor, tensor_of
from probes.base import LostRankError, UsageError

__all__ = ["AdaptiveHook"]


@dataclass(frozen=True, eq=False)
class _Bucket:
    """A bucket under way: the place of its result, and the weight of each rank's gradient in it."""

    work: Work
    buffer: Any
    future: Any
    weights: dict[int, float]


class AdaptiveHook:
    """Reduction of the gradients of ``replica``, a DistributedDataParallel, by ``session``; collective.

    It registers itself. Without a session it makes one that it also closes (`adaptive_session`). The
    gradients are the mean over the ranks that contribute, weighted by each rank's samples in ``batches``,
    else equally. All live ranks get the same bits.

    DDP's broadcast of buffers is switched off, since it would fail once a rank is lost: call ``sync_buffers``
    before a model is evaluated or saved. Raises UsageError for ``find_unused_parameters``, for which DDP
    communicates in each step.
    """

    def __init__(self, replica: Any, session: Session | None = None) -> None:
        if replica.find_unused_parameters:
            raise UsageError(
                "replica: with find_unused_parameters DDP itself communicates in each step, which fails once "
                "a rank is lost",
                hint="Where the same parameters are unused in each step, static_graph=True finds them once.",
            )
        self._owns = session is None
        self.session = session or adaptive_session()
        self._replica = replica
        # The weight of each rank's gradient in this step; empty for equal weights.
        self._weights: dict[int, float] = {}
        # The ranks in the last result, the same on all; the ranks whose gradients are in all buckets of this
        # step.
        self._agreed = set(self.session.members)
        self._used: set[int] | None = None
        self._buckets: queue.SimpleQueue[_Bucket | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._finish, name="adaptive hook", daemon=True)
        self._thread.start()
        replica.broadcast_buffers = False
        # DDP checks annotations, which must be its own; a lambda has none.
        replica.register_comm_hook(self, lambda hook, bucket: hook.reduce(bucket))

    @property
    def rank(self) -> int:
        """This rank, numbered as at the start."""
        return self.session.rank

    @property
    def members(self) -> tuple[int, ...]:
        """The ranks that take part now; another rank may hear of a loss a moment later."""
        return self.session.members

    @property
    def events(self) -> tuple[SessionEvent, ...]:
        """The session's events besides its collectives: losses, measurements, new schedules."""
        return tuple(self.session.events)

    def batches(self, loader: Any, epoch: int) -> Iterator[Any]:
        """Yield the remaining batches of ``epoch`` from ``loader``, weighted by their samples; collective.

        ``loader.batch_sampler`` is an `ElasticSampler`. Once a rank is lost, its samples of that step and of
        later ones are divided among the others. Batches without a synchronizing backward pass (``no_sync``)
        count with the next one that has it.
        """
        sampler = loader.batch_sampler
        sampler.set_epoch(epoch)
        changed = True
        while changed and len(sampler):
            changed, pending = False, 0
            for batch in loader:
                pending += 1
                self._weigh(sampler.weights(pending))
                try:
                    yield batch
                finally:
                    # Also runs if the caller leaves its loop after this batch.
                    used = self._taken()
                    if used is not None:
                        changed, pending = sampler.record(used, pending), 0
                if changed:
                    break
            if pending:
                sampler.record(sampler.members, pending)
        self._weights = {}

    def sync_buffers(self) -> None:
        """Give all ranks the buffers of the lowest live one, as DDP does before a step; collective."""
        buffers = [tensor.detach() for tensor in self._replica.module.buffers()]
        if not buffers:
            return
        rows = [tensor.cpu().contiguous().view(-1).view(torch.uint8) for tensor in buffers]
        found = torch.from_numpy(self._broadcast(bytes_of(torch.cat(rows))))
        for tensor, part in zip(buffers, found.split([row.numel() for row in rows]), strict=True):
            # A copy, as a part may be unaligned for its element type.
            tensor.copy_(part.clone().view(tensor.dtype).view(tensor.shape))

    def close(self) -> None:
        """End the hook, and the session that it made; collective over the live ranks."""
        self._buckets.put(None)
        self._thread.join()
        if self._owns:
            self.session.close()

    def reduce(self, bucket: Any) -> Any:
        """Reduce DDP's ``bucket`` in place, and return its future."""
        buffer, weights = bucket.buffer(), self._weights
        future = torch.futures.Future(devices=[buffer.device] if buffer.is_cuda else [])
        if weights:
            buffer.mul_(weights[self.rank])
        data = array_of(buffer.cpu())
        self.session.setup(data.size, dtype_of_tensor(buffer))
        self._buckets.put(_Bucket(self.session.all_reduce(data), buffer, future, weights))
        return future

    def _broadcast(self, data: Array) -> Array:
        """Return the ``data`` of the lowest live rank; if that is lost meanwhile, of the next one."""
        for root in sorted(self._agreed):
            try:
                self.session.setup(data.size, "uint8", kind="broadcast", root=root)
                return self.session.broadcast(data, root).wait()
            except LostRankError as error:
                failed = error
        raise failed

    def _weigh(self, samples: dict[int, int]) -> None:
        """Weight each rank's gradient by its samples."""
        mean = sum(samples.values()) / len(samples)
        is_even = len(set(samples.values())) == 1
        self._weights = {} if is_even else {rank: count / mean for rank, count in samples.items()}

    def _taken(self) -> set[int] | None:
        """Return the ranks whose gradients are in every bucket since the last call; None without buckets."""
        used, self._used = self._used, None
        return used

    def _finish(self) -> None:
        """Hand over each reduced bucket in order; runs on its own thread."""
        while (bucket := self._buckets.get()) is not None:
            try:
                found = tensor_of(bucket.work.wait())
                members = bucket.work.members
                bucket.buffer.copy_(found)
                # If all ranks with samples of a small last batch are lost, the divisor is 0.
                bucket.buffer.div_(sum(bucket.weights.get(rank, 1.0) for rank in members) or 1.0)
                self._agreed = set(members)
                self._used = self._agreed & (self._agreed if self._used is None else self._used)
            except Exception as error:  # DDP raises it in the backward pass, which waits for the future.
                bucket.future.set_exception(error)
            else:
                bucket.future.set_result(bucket.buffer)
