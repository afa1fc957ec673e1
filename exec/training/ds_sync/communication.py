"""Communication within groups, its times and bytes, and values that all ranks agree on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist

from probes.base import CcctlError, UnavailableError, UsageError
from synth.groups import Division

__all__ = ["Communication", "Iteration", "ProcessGroups", "agreed", "broadcast", "gathered"]

_T = TypeVar("_T")

# Rank 0's tensors are collected until a message has at least this many bytes, and then broadcast.
_BROADCAST_BYTES = 25 << 20


@dataclass(frozen=True)
class Communication:
    """The averaging of one iteration on one rank: its group, its bytes, and its time.

    ``seconds`` is the time from the start of the first message to the end of the last, including waits for
    other ranks.
    """

    iteration: int
    group: tuple[int, ...]
    size_bytes: int
    seconds: float


class ProcessGroups:
    """A cache of process groups by their ranks; making one takes milliseconds."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, ...], Any] = {tuple(range(dist.get_world_size())): dist.group.WORLD}

    def make(self, iterations: Iterable[Division]) -> None:
        """Make the missing groups; collective, with the same divisions on all ranks."""
        for division in iterations:
            for group in division:
                ranks = tuple(sorted(group))
                if len(ranks) > 1 and ranks not in self._known:
                    self._known[ranks] = dist.new_group(list(ranks))

    def of(self, ranks: Iterable[int]) -> Any:
        """Return the process group of these ranks; None for one rank alone."""
        return self._known.get(tuple(sorted(ranks)))


class Iteration:
    """The messages of one iteration within one group."""

    def __init__(self, number: int, group: tuple[int, ...], process_group: Any) -> None:
        self.number, self.group, self._process_group = number, group, process_group
        self._size_bytes = 0
        self._messages: list[_Message] = []

    def reduce(self, row: Any) -> Callable[[], None]:
        """Start to sum ``row`` over the group; return a function that waits for it."""
        message = _Message(row)
        self._messages.append(message)
        self._size_bytes += row.numel() * row.element_size()
        work = dist.all_reduce(row, group=self._process_group, async_op=True)
        message.follow(work)

        def wait() -> None:
            work.wait()
            message.waited_s = time.perf_counter()

        return wait

    def record(self) -> Communication:
        """Return the record of the iteration, after all waits."""
        seconds = 0.0
        if self._messages:
            first = self._messages[0]
            seconds = max(message.seconds_since(first) for message in self._messages)
        return Communication(self.number, self.group, self._size_bytes, seconds)


class _Message:
    """The start and end of one message, by the clock of the CPU or of the GPU that holds it."""

    def __init__(self, row: Any) -> None:
        self._on_gpu = row.is_cuda
        self.waited_s = self._begun_s = time.perf_counter()
        self._ended_s: float | None = None
        if self._on_gpu:
            self._begun, self._ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            self._begun.record()

    def follow(self, work: Any) -> None:
        """Record the time at which ``work`` ends."""
        if self._on_gpu:
            # Wait on a separate stream, so that the recorded time does not include computation.
            with torch.cuda.stream(torch.cuda.Stream()):
                work.wait()
                self._ended.record()
            return
        try:
            work.get_future().then(self._end)
        except RuntimeError:
            # The backend has no futures: `waited_s`, when the wait returned, stands for the end.
            return

    def seconds_since(self, first: _Message) -> float:
        """Return the seconds from the start of ``first`` to the end of this message."""
        if self._on_gpu:
            self._ended.synchronize()
            return float(first._begun.elapsed_time(self._ended)) / 1000
        return (self._ended_s or self.waited_s) - first._begun_s

    def _end(self, _future: Any) -> None:
        self._ended_s = time.perf_counter()


def gathered(value: _T) -> list[_T]:
    """Return the values of all ranks; collective."""
    values: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def agreed(make: Callable[[], _T]) -> _T:
    """Return rank 0's result of ``make`` on every rank; its error is raised on all. Collective."""
    answer: list[Any] = [None, "", False]
    failed: CcctlError | None = None
    if dist.get_rank() == 0:
        try:
            answer[0] = make()
        except CcctlError as error:
            failed = error
            answer = [None, str(error), isinstance(error, UsageError)]
    dist.broadcast_object_list(answer, src=0)
    value, why, usage = answer
    if failed is not None:
        raise failed
    if why:
        raise (UsageError if usage else UnavailableError)(f"rank 0: {why}")
    return cast(_T, value)


def broadcast(tensors: Sequence[Any]) -> None:
    """Copy rank 0's ``tensors`` to every rank, in messages of some megabytes; collective."""
    rows: dict[tuple[Any, Any], list[Any]] = {}
    for tensor in tensors:
        key = (tensor.dtype, tensor.device)
        row = rows.setdefault(key, [])
        row.append(tensor)
        if sum(each.numel() * each.element_size() for each in row) >= _BROADCAST_BYTES:
            _broadcast_row(rows.pop(key))
    for row in rows.values():
        _broadcast_row(row)


def _broadcast_row(tensors: Sequence[Any]) -> None:
    with torch.no_grad():
        row = torch.cat([each.detach().reshape(-1) for each in tensors])
        if row.numel() == 0:
            return
        dist.broadcast(row, src=0)
        parts = row.split([each.numel() for each in tensors])
        for tensor, part in zip(tensors, parts, strict=True):
            tensor.detach().copy_(part.view(tensor.shape))
