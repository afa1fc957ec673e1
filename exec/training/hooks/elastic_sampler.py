"""Division of samples among ranks that may be lost, with a constant global batch (AdapCC, Sec. IV-C)."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from probes.base import UsageError

__all__ = ["ElasticSampler"]

_Samples: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class _Batch:
    """A global batch: its samples, and the ranks among which they are divided."""

    samples: _Samples
    members: tuple[int, ...]

    def share(self, rank: int) -> _Samples:
        """Return the samples of ``rank``; shares differ by at most one."""
        return self.samples[self.members.index(rank) :: len(self.members)]


class ElasticSampler:
    """One rank's share of each global batch, for ``DataLoader(batch_sampler=...)``.

    ``samples`` is the size of the data set, and ``global_batch`` the number of samples of all ranks in a
    step. The order of an epoch depends only on ``seed`` and ``epoch``. After a step, all ranks call
    ``record`` with the ranks whose samples were used. Samples of lost ranks go to the remaining ranks, in the
    next global batch of the same size.

    Every rank has a sampler and makes the same calls. An iterator starts with the first batch that is not
    recorded, and ends when the members change. A rank without a sample in a small last batch gets another
    rank's sample with weight 0; with ``drop_last`` there is no small batch.
    """

    def __init__(
        self,
        samples: int,
        global_batch: int,
        rank: int,
        members: Sequence[int],
        *,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        if rank not in members:
            raise UsageError(f"rank: expected one of {tuple(members)}, found {rank}")
        if samples < 1 or global_batch < len(members):
            raise UsageError(
                "expected at least one sample, and one for each rank in a global batch, found "
                f"{samples} samples in batches of {global_batch} for {len(members)} ranks"
            )
        self.samples, self.global_batch, self.rank = samples, global_batch, rank
        self.members = tuple(sorted(members))
        self._shuffle, self._seed, self._drop_last = shuffle, seed, drop_last
        self.epoch = 0
        # The order of the epoch, and the number of its samples already used. Samples returned from lost ranks
        # are used before the rest.
        self._order, self._cursor = self._epoch_order(), 0
        self._returned: _Samples = np.zeros(0, np.int64)
        self._drawn: deque[_Batch] = deque()
        self._iteration: object | None = None

    def __len__(self) -> int:
        """Return the number of global batches left in this epoch."""
        return self.left // self.global_batch if self._drop_last else -(-self.left // self.global_batch)

    @property
    def left(self) -> int:
        """The number of samples of this epoch that no step has used yet."""
        return int(self._returned.size + self.samples - self._cursor)

    def set_epoch(self, epoch: int) -> None:
        """Start an epoch; do nothing if it is the current one, so that an epoch can be resumed."""
        if epoch != self.epoch:
            self.epoch = epoch
            self._begin()

    def __iter__(self) -> Iterator[list[int]]:
        self._drawn.clear()
        self._iteration = iteration = object()
        while self._iteration is iteration:
            used = sum(batch.samples.size for batch in self._drawn)
            samples = self._next(used, self.global_batch)
            if not samples.size or (self._drop_last and samples.size < self.global_batch):
                return
            batch = _Batch(samples, self.members)
            self._drawn.append(batch)
            share = batch.share(self.rank)
            yield (share if share.size else samples[:1]).tolist()

    def weights(self, batches: int = 1) -> dict[int, int]:
        """Return each rank's number of samples in the first ``batches`` unrecorded batches."""
        found = dict.fromkeys(self.members, 0)
        for batch in islice(self._drawn, batches):
            for rank in batch.members:
                found[rank] += batch.share(rank).size
        return found

    def record(self, used: Collection[int], batches: int = 1) -> bool:
        """Record that a step has used the samples of the ranks ``used``; return whether others are lost.

        The step used the first ``batches`` batches that are drawn but not recorded. Members outside ``used``
        are removed.
        """
        lost = [rank for rank in self.members if rank not in used]
        if len(lost) == len(self.members):
            raise UsageError(f"used: expected some of {self.members}, found {tuple(used)}")
        unused = [np.zeros(0, np.int64)]
        for _ in range(batches):
            batch = self._drawn.popleft()
            from_returned = min(batch.samples.size, self._returned.size)
            self._returned = self._returned[from_returned:]
            self._cursor += batch.samples.size - from_returned
            unused += [batch.share(rank) for rank in lost if rank in batch.members]
        if lost:
            self._returned = np.concatenate([*unused, self._returned])
            self.members = tuple(rank for rank in self.members if rank in used)
            # Batches drawn ahead were divided among the former members.
            self._iteration = None
            self._drawn.clear()
        return bool(lost)

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint; it is the same on every rank and does not depend on members."""
        return {
            "samples": self.samples,
            "shuffle": self._shuffle,
            "seed": self._seed,
            "epoch": self.epoch,
            "cursor": self._cursor,
            "returned": self._returned.tolist(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint, with the current members and global batch."""
        current = self.state_dict()
        for name in ("samples", "shuffle", "seed"):
            if state[name] != current[name]:
                raise UsageError(f"{name}: the checkpoint has {state[name]}, this sampler {current[name]}")
        self.epoch = state["epoch"]
        self._begin()
        self._cursor = state["cursor"]
        self._returned = np.array(state["returned"], np.int64)

    def _begin(self) -> None:
        self._order, self._cursor = self._epoch_order(), 0
        self._returned = np.zeros(0, np.int64)
        self._drawn.clear()
        self._iteration = None

    def _epoch_order(self) -> _Samples:
        order = np.arange(self.samples)
        return np.random.default_rng([self._seed, self.epoch]).permutation(order) if self._shuffle else order

    def _next(self, skipped: int, count: int) -> _Samples:
        """Return up to ``count`` unused samples after the first ``skipped``."""
        first = self._returned[skipped : skipped + count]
        at = self._cursor + max(0, skipped - self._returned.size)
        return np.concatenate([first, self._order[at : at + count - first.size]])
