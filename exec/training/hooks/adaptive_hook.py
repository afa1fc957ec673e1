"""A hook that lets an adaptive session reduce the gradients of DDP (AdapCC, Sec. IV-C).

Late ranks only relay at first, and their gradients are added in a later phase, so each sum includes all
ranks. When a rank dies, all others agree to leave it out, and the same DDP object continues with them.
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
    """A bucket under way: its work, the buffer and future of its result, and the weight of each rank."""

    work: Work
    buffer: Any
    future: Any
    weights: dict[int, float]


class AdaptiveHook:
    """Reduction of the gradients of ``replica``, a DistributedDataParallel, by ``session``; collective.

    The hook registers itself. Without ``session`` the hook makes one by `adaptive_session`, and `close`
    closes it. Gradients become the mean over the ranks that contribute. Ranks have equal weights, or with
    ``batches`` the weights of their samples. All live ranks get the same bits.

    DDP's broadcast of buffers is switched off, because it would fail once a rank is lost; call
    ``sync_buffers`` before a model is evaluated or saved. Raises UsageError for ``find_unused_parameters``,
    with which DDP itself communicates in each step.
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
        # ``_agreed``: the ranks in the last result, the same on all ranks. ``_used``: the ranks whose
        # gradients are in every bucket of this step, None before its first bucket.
        self._agreed = set(self.session.members)
        self._used: set[int] | None = None
        self._buckets: queue.SimpleQueue[_Bucket | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._finish, name="adaptive hook", daemon=True)
        self._thread.start()
        replica.broadcast_buffers = False
        # DDP accepts only its own annotations on a hook; a lambda has none.
        replica.register_comm_hook(self, lambda hook, bucket: hook.reduce(bucket))

    @property
    def rank(self) -> int:
        """This rank, numbered as at the start."""
        return self.session.rank

    @property
    def members(self) -> tuple[int, ...]:
        """The live ranks, as far as this rank knows; another rank may learn of a loss a moment later."""
        return self.session.members

    @property
    def events(self) -> tuple[SessionEvent, ...]:
        """The session's events besides its collectives: losses, measurements, new schedules."""
        return tuple(self.session.events)

    def batches(self, loader: Any, epoch: int) -> Iterator[Any]:
        """Yield the remaining batches of ``epoch`` from ``loader``, weighted by their samples; collective.

        ``loader.batch_sampler`` must be an `ElasticSampler`. When a rank is lost, its samples of that step
        and of later ones are divided among the others. A batch in ``no_sync`` is counted with the next batch
        whose backward pass reduces gradients.
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
                    # This also runs if the caller leaves its loop after this batch.
                    used, self._used = self._used, None
                    if used is not None:
                        changed, pending = sampler.record(used, pending), 0
                if changed:
                    break
            if pending:
                sampler.record(sampler.members, pending)
        self._weights = {}

    def sync_buffers(self) -> None:
        """Copy the buffers of the lowest live rank to all ranks, as DDP does before a step; collective."""
        buffers = [tensor.detach() for tensor in self._replica.module.buffers()]
        if not buffers:
            return
        rows = [tensor.cpu().contiguous().view(-1).view(torch.uint8) for tensor in buffers]
        found = torch.from_numpy(self._broadcast(bytes_of(torch.cat(rows))))
        for tensor, part in zip(buffers, found.split([row.numel() for row in rows]), strict=True):
            # A copy, because a part may be unaligned for its element type.
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
        """Return the ``data`` of the lowest live rank, or of the next one if that rank is lost meanwhile."""
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

    def _finish(self) -> None:
        """Complete the buckets in order as they are reduced; runs on its own thread."""
        while (bucket := self._buckets.get()) is not None:
            try:
                found = tensor_of(bucket.work.wait())
                members = bucket.work.members
                bucket.buffer.copy_(found)
                # The sum is 0 if all ranks with samples of a small last batch are lost.
                bucket.buffer.div_(sum(bucket.weights.get(rank, 1.0) for rank in members) or 1.0)
                self._agreed = set(members)
                self._used = self._agreed & (self._agreed if self._used is None else self._used)
            except Exception as error:  # DDP raises it in the backward pass, which waits for the future.
                bucket.future.set_exception(error)
            else:
                bucket.future.set_result(bucket.buffer)
