"""The process group that torch.distributed calls under the name ccctl.

Large collectives on CPU tensors go through a queue. They run on gloo until all ranks have a plan, and then by
the faster of plan and gloo. Small collectives and operations without plans (messages between two ranks,
bitwise operators, types that executors do not reduce) go to gloo at once. Tensors on a GPU go to NCCL.

The choice depends only on properties that are equal on all ranks: kind, type, operator, root, and the sizes
that PyTorch requires to be equal. Properties of one rank, such as layout, lateness or how it splits its own
buffer, have no influence.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import json
import logging
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from operator import methodcaller
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import (
    AllgatherOptions,
    AllreduceCoalescedOptions,
    AllreduceOptions,
    AllToAllOptions,
    BarrierOptions,
    BroadcastOptions,
    GatherOptions,
    ReduceOptions,
    ReduceScatterOptions,
    ScatterOptions,
)
from torch.distributed import PrefixStore, ProcessGroup, ReduceOp

from exec.adaptive import CollectiveCall
from exec.program import Array
from exec.training.backend.call_log import CallLog
from exec.training.backend.exchange import MessageExchange
from exec.training.backend.group_rendezvous import hear_rank_0, looks, rendezvous
from exec.training.backend.known_schedules import KnownSchedules
from exec.training.backend.planned_collectives import PlannedCollectives, size_class
from exec.training.backend.preparation import Preparation
from exec.training.backend.tensors import REDUCIBLE, array_of, bytes_of, flat
from exec.training.backend.works import QueuedWork, WorkQueue
from synth.collective import REDUCING, Kind
from synth.network import Network

__all__ = ["LEAST_BYTES", "PREFERENCES", "Settings", "TorchGroup"]

_log = logging.getLogger(__name__)

# Below this size gloo takes little longer than waking the queue's thread would.
LEAST_BYTES = 64 << 10
PREFERENCES = ("measured", "ccctl", "gloo")
# Longest time that a leaving rank waits for ranks that still need it.
_SHUTDOWN_S = 60.0
# Longest time that an unused group waits at its end for ranks that still connect.
_CONNECTING_S = 10.0
# The key under which the store counts the ranks that gloo has connected.
_CONNECTED = "connected"
# Extra time for a collective that waits for its plan: compilation, measurements, searches.
_PLANNING_S = 240.0
_OPERATORS = {
    ReduceOp.SUM: "sum",
    ReduceOp.PRODUCT: "prod",
    ReduceOp.MIN: "min",
    ReduceOp.MAX: "max",
    ReduceOp.AVG: "avg",
}
_CPU = torch.device("cpu")
# Collectives with a block for each rank.
_BLOCKS = ("all_gather", "reduce_scatter", "gather", "scatter")
_GROUPS: weakref.WeakSet[TorchGroup] = weakref.WeakSet()
# Collectives without plans that have been logged: each is logged once, not once for each group.
_SAID: set[tuple[str, str]] = set()
# A function that runs a request on its arrays by plans.
_Planned = Callable[[PlannedCollectives, CollectiveCall], None]


@dataclass(frozen=True)
class Settings:
    """The settings of a group; rank 0's apply on all ranks.

    - ``network`` returns the network, or None to measure it.
    - ``prefer``: "measured" uses gloo until plans are ready, and then tries both on some calls of each class;
      "ccctl" uses plans only, and waits for them; "gloo" uses gloo only.
    - ``least_bytes``: smaller collectives go to gloo.
    - ``budget_s``: seconds that rank 0 may search for a schedule.
    - ``known``: cached schedules, which need no search.
    """

    network: Callable[[], Network | None] = lambda: None
    prefer: str = "measured"
    least_bytes: int = LEAST_BYTES
    budget_s: float = 5.0
    known: KnownSchedules = field(default_factory=KnownSchedules)


@dataclass(frozen=True, eq=False)
class _Call:
    """A collective on ``tensors``, with functions that run it by gloo and by a plan.

    ``tensors`` have the same sizes on all ranks. ``size_bytes`` is the size of the larger buffer. ``result``
    is the value of the work. ``blocks`` are the elements of each rank's block if they differ. gloo refuses
    such blocks in an all_gather: ``gloo`` then makes several collectives of it, and waits for them.
    """

    kind: Kind
    tensors: Sequence[Any]
    size_bytes: int
    planned: _Planned
    gloo: Callable[[Any], Any]
    result: list[Any]
    limit: timedelta
    op: Any = ReduceOp.SUM
    root: int = 0
    blocks: tuple[int, ...] = ()


class TorchGroup(ProcessGroup):  # type: ignore[misc]  # torch is not there for mypy
    """A process group over ``store``; its constructor waits for other ranks only as gloo's does.

    Ranks connect, measure the network and make plans beside the job, from the first large collective on. If
    the settings' ``network`` fails on rank 0, all ranks raise its error.
    """

    def __init__(
        self, store: Any, rank: int, size: int, timeout: timedelta, settings: Settings | None = None
    ) -> None:
        super().__init__(rank, size)
        own = settings or Settings()
        self._timeout, self._rank, self._size = timeout, rank, size
        word = hear_rank_0(
            PrefixStore("ccctl", store),
            rank,
            size,
            lambda: (own.network(), json.dumps([own.prefer, own.least_bytes])),
            timeout.total_seconds(),
        )
        prefer, least_bytes = json.loads(word.text)
        self._settings = replace(own, prefer=prefer, least_bytes=least_bytes)
        self._store = PrefixStore(word.scope, store)
        # Two groups of gloo: it matches collectives by their order, and there is no order between the calls
        # of the script's thread and the queue's.
        self._direct, self._queued = (self._gloo(name) for name in ("direct", "queued"))
        self._store.add(_CONNECTED, 1)
        self._set_default_backend(ProcessGroup.BackendType.CUSTOM)
        self._register_backend(_CPU, ProcessGroup.BackendType.CUSTOM, self._direct._get_backend(_CPU))
        exchange = MessageExchange(self._direct, rank, size)
        self._preparation = Preparation(
            lambda: rendezvous(exchange, rank, size),
            word.made,
            own.budget_s,
            own.known,
            at_once=prefer == "ccctl",
        )
        # The reference is weak, because a strong one would keep the group and gloo's threads alive after
        # destroy_process_group. A process forked later would try to join threads that it does not have.
        itself = weakref.ref(self)
        self._calls = CallLog(self._store, rank, size, lambda: _name_of_group(itself()))
        self._queue = WorkQueue("ccctl collectives")
        self._splits: collections.Counter[tuple[int, ...]] = collections.Counter()
        _GROUPS.add(self)

    @property
    def decided(self) -> dict[Any, str]:
        """The winner, "ccctl" or "gloo", of each class of collectives that has been tried."""
        autotuner = self._preparation.autotuner
        found = autotuner.decided if autotuner else {}
        return {key: PREFERENCES[1 + way] for key, way in found.items()}

    def getBackendName(self) -> str:  # noqa: N802 - PyTorch's name
        return "ccctl"

    def allreduce(
        self, tensors: Any, opts: Any = None, timeout: timedelta | None = None, *, op: Any = None
    ) -> Any:
        tensors = _listed(tensors)
        opts = _options(AllreduceOptions, opts or op, timeout)
        gloo = methodcaller("allreduce", tensors, opts)
        if len(tensors) != 1:
            return self._refused(gloo)
        planned = _in_place(tensors[0], array_of)
        size = _size_bytes(tensors)
        return self._carry_out(
            _Call("all_reduce", tensors, size, planned, gloo, tensors, opts.timeout, opts.reduceOp)
        )

    def allreduce_coalesced(self, tensors: list[Any], opts: Any = None) -> Any:
        opts = opts or AllreduceCoalescedOptions()
        gloo = methodcaller("allreduce_coalesced", tensors, opts)
        if len({(each.dtype, each.layout) for each in tensors}) != 1 or tensors[0].layout != torch.strided:
            return self._refused(gloo)

        def planned(plans: PlannedCollectives, request: CollectiveCall) -> None:
            row = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
            plans.run(request, array_of(row))
            parts = row.split([tensor.numel() for tensor in tensors])
            for tensor, part in zip(tensors, parts, strict=True):
                tensor.detach().copy_(part.view_as(tensor))

        size = _size_bytes(tensors)
        return self._carry_out(
            _Call("all_reduce", tensors, size, planned, gloo, tensors, opts.timeout, opts.reduceOp)
        )

    def reduce(
        self,
        tensors: Any,
        opts: Any = None,
        op: Any = None,
        timeout: timedelta | None = None,
        *,
        root: int | None = None,
    ) -> Any:
        tensors = _listed(tensors)
        opts = _rooted(ReduceOptions, root if opts is None else opts, op, timeout)
        gloo = methodcaller("reduce", tensors, opts)
        if len(tensors) != 1 or not self._has(opts.rootRank) or opts.rootTensor != 0:
            return self._refused(gloo)
        planned = _in_place(tensors[0], array_of)
        size = _size_bytes(tensors)
        return self._carry_out(
            _Call("reduce", tensors, size, planned, gloo, tensors, opts.timeout, opts.reduceOp, opts.rootRank)
        )

    def broadcast(
        self, tensors: Any, opts: Any = None, timeout: timedelta | None = None, *, root: int | None = None
    ) -> Any:
        tensors = _listed(tensors)
        opts = _rooted(BroadcastOptions, root if opts is None else opts, None, timeout)
        gloo = methodcaller("broadcast", tensors, opts)
        if len(tensors) != 1 or not self._has(opts.rootRank) or opts.rootTensor != 0:
            return self._refused(gloo)
        planned = _in_place(tensors[0], bytes_of)
        size = _size_bytes(tensors)
        return self._carry_out(
            _Call("broadcast", tensors, size, planned, gloo, tensors, opts.timeout, root=opts.rootRank)
        )

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        opts = opts if isinstance(opts, AllgatherOptions) else AllgatherOptions()
        outputs = [outputs] if outputs and isinstance(outputs[0], torch.Tensor) else outputs
        inputs = _listed(inputs)
        gloo = methodcaller("allgather", outputs, inputs, opts)
        if not len(outputs) == len(inputs) == 1:
            return self._refused(gloo)
        parts, given = outputs[0], inputs[0]
        if blocks := self._unequal(parts, given):
            return self._gather_unequal(parts, given, blocks, opts.timeout)

        def planned(plans: PlannedCollectives, request: CollectiveCall) -> None:
            row = torch.empty(given.numel() * self._size, dtype=given.dtype)
            self._own(row).copy_(given.detach().reshape(-1))
            plans.run(request, bytes_of(row))
            _spread(row, parts)

        size = _size_bytes(inputs) * self._size
        return self._carry_out(_Call("all_gather", [given, *parts], size, planned, gloo, parts, opts.timeout))

    def all_gather_single(self, output: Any, given: Any, opts: Any = None) -> Any:
        opts = opts or AllgatherOptions()
        planned = partial(self._gathered, output, given)
        gloo = methodcaller("_allgather_base", output, given, opts)
        # The output may hold the blocks concatenated or stacked, so only the numbers of elements are
        # compared.
        alike = given.numel() * self._size == output.numel() and given.dtype == output.dtype
        tensors = [given] * (self._size + 1) if alike else [given, output]
        return self._carry_out(
            _Call("all_gather", tensors, _size_bytes([output]), planned, gloo, [output], opts.timeout)
        )

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(self, outputs: list[Any], inputs: list[Any], opts: Any = None) -> Any:
        works = [self.all_gather_single(*pair, opts) for pair in zip(outputs, inputs, strict=True)]
        return _Several(works, outputs)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def allgather_coalesced(self, outputs: list[list[Any]], inputs: list[Any], opts: Any = None) -> Any:
        works = [
            self.allgather([list(each)], [given], opts)
            for each, given in zip(zip(*outputs, strict=True), inputs, strict=True)
        ]
        return _Several(works, [tensor for each in outputs for tensor in each])

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        opts = _options(ReduceScatterOptions, opts, None)
        outputs = _listed(outputs)
        inputs = [inputs] if inputs and isinstance(inputs[0], torch.Tensor) else inputs
        gloo = methodcaller("reduce_scatter", outputs, inputs, opts)
        if not len(outputs) == len(inputs) == 1:
            return self._refused(gloo)
        parts, output = inputs[0], outputs[0]

        def planned(plans: PlannedCollectives, request: CollectiveCall) -> None:
            row = torch.cat([part.detach().reshape(-1) for part in parts])
            with flat(output) as result:
                plans.run(request, array_of(row), array_of(result))

        blocks, size = self._unequal(parts, output), _size_bytes(parts)
        return self._carry_out(
            _Call(
                "reduce_scatter",
                [output, *parts],
                size,
                planned,
                gloo,
                outputs,
                opts.timeout,
                opts.reduceOp,
                blocks=blocks,
            )
        )

    def _gather_unequal(
        self, parts: Sequence[Any], given: Any, blocks: tuple[int, ...], limit: timedelta
    ) -> Any:
        """Carry out an all_gather of unequal blocks."""

        def planned(plans: PlannedCollectives, request: CollectiveCall) -> None:
            row = torch.empty(sum(blocks), dtype=given.dtype)
            plans.run(request, bytes_of(given.detach().reshape(-1)), bytes_of(row))
            for part, block in zip(parts, row.split(list(blocks)), strict=True):
                part.detach().copy_(block.view(part.shape))

        gloo = partial(_gather_by_broadcasts, parts, given, self._rank)
        tensors, size = [given, *parts], _size_bytes(parts)
        return self._carry_out(
            _Call("all_gather", tensors, size, planned, gloo, list(parts), limit, blocks=blocks)
        )

    def _unequal(self, parts: Sequence[Any], own: Any) -> tuple[int, ...]:
        """Return the elements of each rank's block if they differ and plans can serve them, else ()."""
        blocks = tuple(part.numel() for part in parts)
        alike = {(part.dtype, part.device.type, part.layout) for part in (*parts, own)}
        served = len(blocks) == self._size and alike == {(own.dtype, "cpu", torch.strided)}
        return blocks if served and len(set(blocks)) > 1 and own.numel() == blocks[self._rank] else ()

    def reduce_scatter_single(self, output: Any, given: Any, opts: Any = None) -> Any:
        opts = _options(ReduceScatterOptions, opts, None)
        planned = _between(given, output, array_of)
        gloo = methodcaller("_reduce_scatter_base", output, given, opts)
        alike = output.numel() * self._size == given.numel() and given.dtype == output.dtype
        tensors = [output] * (self._size + 1) if alike else [output, given]
        size = _size_bytes([given])
        return self._carry_out(
            _Call("reduce_scatter", tensors, size, planned, gloo, [output], opts.timeout, opts.reduceOp)
        )

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(self, outputs: list[Any], inputs: list[Any], opts: Any = None) -> Any:
        works = [self.reduce_scatter_single(*pair, opts) for pair in zip(outputs, inputs, strict=True)]
        return _Several(works, outputs)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def all_to_all_single(
        self, output: Any, given: Any, out_sizes: list[int], in_sizes: list[int], opts: Any = None
    ) -> Any:
        # No other rank knows the sizes of the blocks between two ranks, so there are no plans.
        opts = opts if isinstance(opts, AllToAllOptions) else AllToAllOptions()
        for tensor, sizes in ((output, out_sizes), (given, in_sizes)):
            # gloo of PyTorch 2.13 cuts these parts off, and leaves numbers that nobody wrote.
            if not sizes and tensor.dim() and tensor.shape[0] % self._size:
                raise ValueError(
                    f"all_to_all of {self._size} equal parts: dimension 0 has {tensor.shape[0]} elements"
                )
        gloo = methodcaller("all_to_all_single", output, given, out_sizes, in_sizes, opts)
        return self._hand_over("all_to_all", given, gloo, [output])

    alltoall_base = all_to_all_single

    def alltoall(self, outputs: list[Any], inputs: list[Any], opts: Any = None) -> Any:
        opts = opts if isinstance(opts, AllToAllOptions) else AllToAllOptions()
        gloo = methodcaller("alltoall", outputs, inputs, opts)
        return self._hand_over("all_to_all", _first(inputs), gloo, outputs)

    def gather(
        self,
        outputs: Any,
        inputs: Any,
        opts: Any = None,
        timeout: timedelta | None = None,
        *,
        root: int | None = None,
    ) -> Any:
        opts = root if opts is None else opts
        inputs = _listed(inputs)
        if isinstance(opts, int):
            outputs = [outputs] if outputs else []
        opts = _rooted(GatherOptions, opts, None, timeout)
        gloo = methodcaller("gather", outputs, inputs, opts)
        if not self._of_one_root(opts.rootRank, inputs, outputs):
            return self._refused(gloo)
        given, at_root = inputs[0], self._rank == opts.rootRank

        def planned(plans: PlannedCollectives, request: CollectiveCall) -> None:
            if not at_root:
                plans.run(request, bytes_of(given.detach().reshape(-1)))
                return
            row = torch.empty(given.numel() * self._size, dtype=given.dtype)
            self._own(row).copy_(given.detach().reshape(-1))
            plans.run(request, bytes_of(row))
            _spread(row, outputs[0])

        # Arguments of this rank alone must not influence the choice between plan and gloo.
        result = list(outputs[0]) if at_root and outputs else []
        size = _size_bytes(inputs) * self._size
        return self._carry_out(
            _Call("gather", inputs, size, planned, gloo, result, opts.timeout, root=opts.rootRank)
        )

    def scatter(
        self,
        outputs: Any,
        inputs: Any,
        opts: Any = None,
        timeout: timedelta | None = None,
        *,
        root: int | None = None,
    ) -> Any:
        opts = root if opts is None else opts
        outputs = _listed(outputs)
        if isinstance(opts, int):
            inputs = [inputs] if inputs else []
        opts = _rooted(ScatterOptions, opts, None, timeout)
        gloo = methodcaller("scatter", outputs, inputs, opts)
        if not self._of_one_root(opts.rootRank, outputs, inputs):
            return self._refused(gloo)
        output, at_root = outputs[0], self._rank == opts.rootRank

        def planned(plans: PlannedCollectives, request: CollectiveCall) -> None:
            if not at_root:
                with flat(output) as result:
                    plans.run(request, bytes_of(result))
                return
            row = torch.cat([part.detach().reshape(-1) for part in inputs[0]])
            plans.run(request, bytes_of(row))
            output.detach().copy_(self._own(row).view(output.shape))

        size = _size_bytes(outputs) * self._size
        return self._carry_out(
            _Call("scatter", outputs, size, planned, gloo, outputs, opts.timeout, root=opts.rootRank)
        )

    def barrier(self, opts: Any = None, timeout: timedelta | None = None) -> Any:
        """Wait for all ranks, and for all operations requested before."""
        opts = _options(BarrierOptions, opts, timeout)
        # Gloo's own barrier waits for operations given to it directly.
        direct = self._direct.barrier(opts)

        def run() -> Any:
            self._queue.settle()
            return direct

        return self._queued_work("barrier", run, [], opts.timeout)

    def send(self, tensors: list[Any], dst: int, tag: int = 0) -> Any:
        return self._hand_over("send", _first(tensors), methodcaller("send", tensors, dst, tag))

    def recv(self, tensors: list[Any], src: int, tag: int = 0) -> Any:
        return self._hand_over("recv", _first(tensors), methodcaller("recv", tensors, src, tag))

    def recv_anysource(self, tensors: list[Any], tag: int = 0) -> Any:
        return self._hand_over("recv", _first(tensors), methodcaller("recv_anysource", tensors, tag))

    def split_group(
        self,
        ranks: list[int],
        timeout: timedelta | None = None,
        opts: Any = None,
        group_name: str | None = None,
        group_desc: str | None = None,
        device_types: Any = None,
    ) -> Any:
        """Return the group of ``ranks`` of this group, None on other ranks; collective among ``ranks``.

        The new group has the settings of this one, and measures its links; ``opts`` and ``device_types`` are
        ignored.
        """
        if self._rank not in ranks:
            return None
        # Successive splits may have the same ranks.
        self._splits[tuple(ranks)] += 1
        store = PrefixStore(f"split {ranks} {self._splits[tuple(ranks)]}", self._store)
        settings = replace(self._settings, network=lambda: None)
        group = TorchGroup(store, ranks.index(self._rank), len(ranks), timeout or self._timeout, settings)
        group._set_group_name(group_name or f"{self.group_name}:split:{self._splits[tuple(ranks)]}")
        group._set_group_desc(group_desc or "")
        return group

    def shutdown(self) -> None:
        """Leave the group once no other rank needs this one."""
        if self not in _GROUPS:
            return
        _GROUPS.discard(self)
        if not self._calls.called:
            self._wait_until_connected()
        self._queue.close(_SHUTDOWN_S)
        broken = self._queue.error is not None
        self._preparation.close(lambda others: None if broken else others.wait(_SHUTDOWN_S))

    def _wait_until_connected(self) -> None:
        """Wait until gloo has connected all ranks: it fails on a rank whose peer leaves before."""
        # If the store is gone, the job is ending.
        with contextlib.suppress(RuntimeError):
            for _ in looks(_CONNECTING_S):
                if self._store.add(_CONNECTED, 0) >= self._size:
                    return

    def abort(self) -> None:
        """Fail all operations under way."""
        self._preparation.revoke("the process group was aborted")

    def _carry_out(self, call: _Call) -> Any:
        """Run a collective by gloo at once, or through the queue; the choice is the same on all ranks."""
        first = call.tensors[0]
        if why := self._unplanned(call):
            return self._hand_over(why, first, call.gloo, call.result)
        name = f"{call.kind} of {_size_of(call.tensors)}"
        is_small = call.size_bytes < self._settings.least_bytes
        if (is_small and not call.blocks) or self._size == 1:
            return self._at_once(name, call.gloo, call.result, call.limit)
        _check_writable(call.kind, call.result)
        if is_small:
            return self._queued_work(name, lambda: call.gloo(self._queued), call.result, call.limit)
        request = self._request(call)
        waits = self._settings.prefer == "ccctl" and not self._preparation.has(request)
        return self._queued_work(name, lambda: self._serve(request, call), call.result, call.limit, waits)

    def _queued_work(
        self, name: str, run: Callable[[], Any], result: list[Any], limit: timedelta, waits: bool = False
    ) -> Any:
        number, calls, plans = self._calls.begin(), self._calls, self._preparation
        work = QueuedWork(run, result, partial(calls.explained, number, name))
        # A call that waits for a plan gets the time for making the plan in addition.
        limit_s = self._limit_s(limit) + (_PLANNING_S if waits else 0.0)
        calls.watch(number, name, limit_s, work, plans.revoke)
        return self._queue.put(work)

    def _at_once(self, name: str, gloo: Callable[[Any], Any], result: Sequence[Any], limit: timedelta) -> Any:
        _check_writable(name, result)
        work = gloo(self._direct)
        if work is not None:
            self._calls.watch(self._calls.begin(), name, self._limit_s(limit), work)
        return work

    def _unplanned(self, call: _Call) -> str:
        """Return why ``call`` has no plan; "" if it may have one."""
        first = call.tensors[0]
        if any(tensor.layout != torch.strided or tensor.device != first.device for tensor in call.tensors):
            return f"{call.kind} of tensors that are not dense"
        if first.device.type != "cpu":
            return f"{call.kind} on {first.device.type}"
        unlike = len({(tensor.numel(), tensor.dtype) for tensor in call.tensors}) > 1
        if call.kind in _BLOCKS and unlike and not call.blocks:
            return f"{call.kind} of unequal parts"
        if call.kind in _BLOCKS and len(call.tensors) not in (1, self._size + 1):
            return f"{call.kind} of other than {self._size} parts"
        if call.kind in REDUCING:
            op = _operator_of(call.op)
            if op is None or any(tensor.dtype != first.dtype for tensor in call.tensors):
                return f"{call.kind} by {_name_of(call.op)}"
            if first.dtype not in REDUCIBLE or (op == "avg" and not first.dtype.is_floating_point):
                return f"{call.kind} of {first.dtype}"
        return ""

    def _request(self, call: _Call) -> CollectiveCall:
        first = call.tensors[0]
        if call.kind in REDUCING:
            summed = call.tensors if call.kind == "all_reduce" else [first]
            count = max(call.blocks, default=sum(tensor.numel() for tensor in summed))
            op = _operator_of(call.op) or ""
            item_bytes = first.dtype.itemsize
            return CollectiveCall(
                call.kind, op, REDUCIBLE[first.dtype], count, item_bytes, call.root, call.blocks
            )
        if call.blocks:
            blocks = tuple(elements * first.dtype.itemsize for elements in call.blocks)
            return CollectiveCall(call.kind, "sum", "uint8", max(blocks), 1, call.root, blocks)
        return CollectiveCall(call.kind, "sum", "uint8", first.numel() * first.dtype.itemsize, 1, call.root)

    def _serve(self, request: CollectiveCall, call: _Call) -> Any:
        """Run a request by its plan and return None, or return gloo's work; on the queue's thread."""
        if self._settings.prefer == "gloo":
            return call.gloo(self._queued)
        if not self._preparation.ready(request):
            return call.gloo(self._queued)
        plans, autotuner = self._preparation.plans, self._preparation.autotuner
        assert plans is not None and autotuner is not None and self._preparation.shutdown is not None

        def planned() -> None:
            # Inference tensors may only be written within inference mode.
            with torch.inference_mode():
                call.planned(plans, request)

        size = size_class(call.size_bytes)
        key = (request.kind, request.op, request.dtype, request.root, size, request.blocks)
        if self._settings.prefer == "ccctl" or autotuner.decided.get(key) == 0:
            planned()
        elif autotuner.decided.get(key) == 1:
            return call.gloo(self._queued)
        else:
            self._queue.settle()
            autotuner.serve(key, (planned, lambda: _waited(call.gloo(self._queued))))
            if key in autotuner.decided:
                _log.info("%s: %s", " ".join(map(str, key)), self.decided[key])
        self._preparation.shutdown.count()
        return None

    def _hand_over(
        self, name: str, tensor: Any, gloo: Callable[[Any], Any], result: Sequence[Any] | None = None
    ) -> Any:
        """Pass an operation without plans to gloo or NCCL, and log that once.

        ``result`` are the tensors that a collective fills; None for a message.
        """
        device = tensor.device if tensor is not None else _CPU
        by = "gloo" if device.type == "cpu" else "nccl"
        if self._rank == 0 and (name, by) not in _SAID:
            _log.warning("ccctl has no plans for %s: %s carries it out", name, by)
            _SAID.add((name, by))
        if by == "nccl" and device.type not in {kind.type for kind in self._direct._device_types}:
            self._add_nccl()
        if result is None or by == "nccl":
            return gloo(self._direct)
        return self._at_once(name, gloo, result, timedelta(0))

    def _refused(self, gloo: Callable[[Any], Any]) -> Any:
        """Pass invalid arguments of this rank to gloo, which refuses them before it communicates."""
        return gloo(self._direct._get_backend(_CPU))

    def _has(self, root: int) -> bool:
        return 0 <= root < self._size

    def _of_one_root(self, root: int, tensors: Sequence[Any], lists: Sequence[Any]) -> bool:
        """Return whether there is one tensor and, at the root only, one list with a tensor for each rank."""
        if not self._has(root) or len(tensors) != 1 or len(lists) != int(root == self._rank):
            return False
        like = {(each.numel(), each.dtype) for parts in lists for each in (*parts, tensors[0])}
        return len(like) <= 1 and all(len(parts) == self._size for parts in lists)

    def _gathered(self, output: Any, given: Any, plans: PlannedCollectives, request: CollectiveCall) -> None:
        with flat(output) as row:
            block, source = self._own(row), given.detach().reshape(-1)
            if block.data_ptr() != source.data_ptr():
                block.copy_(source)
            plans.run(request, bytes_of(row))

    def _own(self, row: Any) -> Any:
        """Return this rank's block of a row that has a block for each rank."""
        return row.chunk(self._size)[self._rank]

    def _gloo(self, name: str) -> Any:
        store = PrefixStore(name, self._store)
        group = ProcessGroup(store, self._rank, self._size)
        gloo = dist.ProcessGroupGloo(store, self._rank, self._size, timeout=self._timeout)
        group._set_default_backend(ProcessGroup.BackendType.GLOO)
        group._register_backend(_CPU, ProcessGroup.BackendType.GLOO, gloo)
        return group

    def _add_nccl(self) -> None:
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = self._timeout
        nccl = dist.ProcessGroupNCCL(PrefixStore("cuda", self._store), self._rank, self._size, options)
        self._direct._register_backend(torch.device("cuda"), ProcessGroup.BackendType.NCCL, nccl)

    def _limit_s(self, asked: timedelta) -> float:
        """Return the caller's limit for a collective in seconds, or else the group's."""
        if asked > timedelta(0):
            return asked.total_seconds()
        # PyTorch changes a group's timeout at its backend, the direct group; copy it to the queued one.
        timeout = self._direct._get_backend(_CPU).options._timeout
        if timeout != self._timeout:
            self._timeout = timeout
            self._queued._get_backend(_CPU)._set_default_timeout(timeout)
        return float(timeout.total_seconds())


class _Several(dist.Work):  # type: ignore[misc]  # torch is not there for mypy
    """Several works that the caller waits for together."""

    def __init__(self, works: list[Any], result: list[Any]) -> None:
        super().__init__()
        self._works, self._result = works, result

    def wait(self, timeout: timedelta | None = None) -> bool:
        for work in self._works:
            work.wait(timeout) if timeout is not None else work.wait()
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        return all(work.is_completed() for work in self._works)

    def is_success(self) -> bool:
        return all(work.is_success() for work in self._works)

    def result(self) -> list[Any]:
        self.wait()
        return self._result

    def get_future(self) -> Any:
        every = torch.futures.collect_all([work.get_future() for work in self._works])

        def checked(done: Any) -> list[Any]:
            for each in done.value():
                each.value()
            return self._result

        return every.then(checked)


@atexit.register
def _leave() -> None:
    for group in tuple(_GROUPS):
        group.shutdown()


def _name_of_group(group: TorchGroup | None) -> str:
    return str(group.group_name) if group is not None else ""


def _check_writable(name: str, tensors: Sequence[Any]) -> None:
    """Raise ValueError for a tensor whose elements overlap in memory: gloo would write past its memory."""
    for tensor in tensors:
        if tensor.layout == torch.strided and torch._debug_has_internal_overlap(tensor) == 1:
            raise ValueError(
                f"ccctl: {name}: expected a tensor whose elements do not overlap, found one of shape "
                f"{tuple(tensor.shape)} with strides {tensor.stride()}, as expand() returns; clone() it"
            )


def _size_of(tensors: Sequence[Any]) -> str:
    first = tensors[0]
    shape = "x".join(map(str, first.shape)) or "1"
    return f"{shape} {str(first.dtype).removeprefix('torch.')}"


def _listed(tensors: Any) -> list[Any]:
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def _first(tensors: Sequence[Any]) -> Any:
    return tensors[0] if tensors else None


def _options(kind: Any, given: Any, timeout: timedelta | None) -> Any:
    """Return options of the class ``kind``; ``given`` may be an operator in their place."""
    if isinstance(given, kind):
        return given
    options = kind()
    if given is not None:
        options.reduceOp = given
    if timeout is not None:
        options.timeout = timeout
    return options


def _rooted(kind: Any, given: Any, op: Any, timeout: timedelta | None) -> Any:
    """Return options of the class ``kind``, which has a root; ``given`` may be the root in their place."""
    if not isinstance(given, int):
        return given or kind()
    options = _options(kind, op, timeout)
    options.rootRank = given
    return options


def _operator_of(op: Any) -> str | None:
    """Return the executors' name of an operator; None if they lack it."""
    return next((name for known, name in _OPERATORS.items() if op == known), None)


def _name_of(op: Any) -> str:
    """Return an operator's name, such as BOR, also for an object that wraps the operator."""
    kind = getattr(op, "op", op)
    return str(getattr(kind, "name", kind))


def _size_bytes(tensors: Sequence[Any]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _in_place(tensor: Any, view: Callable[[Any], Array]) -> _Planned:
    """Return a function that runs a collective in place on ``tensor``; ``view`` gives its array."""

    def planned(plans: PlannedCollectives, request: CollectiveCall) -> None:
        with flat(tensor) as row:
            plans.run(request, view(row))

    return planned


def _between(given: Any, output: Any, view: Callable[[Any], Array]) -> _Planned:
    """Return a function that runs a collective which reads ``given`` and fills ``output``."""

    def planned(plans: PlannedCollectives, request: CollectiveCall) -> None:
        with flat(output) as result:
            row = given.detach().reshape(-1)
            if _overlap(row, result):
                row = row.clone()
            plans.run(request, view(row), view(result))

    return planned


def _waited(work: Any) -> None:
    """Wait for gloo's work; None stands for work that is done."""
    if work is not None:
        work.wait()


def _gather_by_broadcasts(parts: Sequence[Any], given: Any, rank: int, gloo: Any) -> None:
    """Gather blocks that differ in size: one broadcast for each rank."""
    rows = [part.detach().contiguous() for part in parts]
    rows[rank].copy_(given.detach().view(rows[rank].shape))
    works = [
        gloo.broadcast([row], _rooted(BroadcastOptions, root, None, None))
        for root, row in enumerate(rows)
        if row.numel()
    ]
    for work in works:
        work.wait()
    with torch.inference_mode():
        for part, row in zip(parts, rows, strict=True):
            part.detach().copy_(row)


def _spread(row: Any, parts: Sequence[Any]) -> None:
    for part, block in zip(parts, row.chunk(len(parts)), strict=True):
        part.detach().copy_(block.view(part.shape))


def _overlap(tensor: Any, other: Any) -> bool:
    first, second = (row.data_ptr() for row in (tensor, other))
    return bool(first < second + _size_bytes([other]) and second < first + _size_bytes([tensor]))
