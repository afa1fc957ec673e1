"""Hierarchical all_reduce: reduce within each group, all_reduce between the groups, broadcast within."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

__all__ = ["Hierarchical"]


class Hierarchical:
    """A hook for DDP's buckets; making and closing it are collective.

    ``groups`` are the ranks of each group; the first rank of a group is its leader. A thread reduces the
    buckets in order while the backward pass continues.
    """

    def __init__(self, groups: Sequence[Sequence[int]]) -> None:
        rank = dist.get_rank()
        # All ranks must make all groups, in the same order.
        made = {tuple(group): dist.new_group(list(group)) for group in groups if len(group) > 1}
        self._members = next(tuple(group) for group in groups if rank in group)
        self._within = made.get(self._members)
        leaders = sorted(group[0] for group in groups)
        self._between = dist.new_group(leaders) if len(leaders) > 1 else None
        self._leads = rank == self._members[0]
        self._made = [*made.values(), *([self._between] if self._between is not None else [])]
        self._asked: queue.SimpleQueue[tuple[Any, Any] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="hierarchical", daemon=True)
        self._thread.start()

    def hook(self, state: Any, bucket: Any) -> Any:
        """Average one bucket of DDP, and return a future of the result."""
        future: Any = torch.futures.Future()
        self._asked.put((bucket.buffer(), future))
        return future

    def close(self) -> None:
        self._asked.put(None)
        self._thread.join()
        for group in self._made:
            if group is not dist.GroupMember.NON_GROUP_MEMBER:
                dist.destroy_process_group(group)

    def _work(self) -> None:
        while (asked := self._asked.get()) is not None:
            row, future = asked
            try:
                self._average(row)
            except Exception as error:  # DDP raises it in the backward pass, which waits for the future.
                future.set_exception(error)
            else:
                future.set_result(row)

    def _average(self, row: Any) -> None:
        leader = self._members[0]
        if self._within is not None:
            dist.reduce(row, leader, group=self._within)
        if self._leads:
            if self._between is not None:
                dist.all_reduce(row, group=self._between)
            row.div_(dist.get_world_size())
        if self._within is not None:
            dist.broadcast(row, leader, group=self._within)
