"""DS-Sync around a model: local steps in the backward pass, averages in changing groups (Sec. III)."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
import socket
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from exec.training import Watch, shared_memory
from exec.training.ds_sync.adjustment import Adjustment
from exec.training.ds_sync.buckets import AveragedBucket, Layer, buckets_of, layers_of
from exec.training.ds_sync.communication import (
    Communication,
    Iteration,
    ProcessGroups,
    agreed,
    broadcast,
    gathered,
)
from exec.training.ds_sync.partial_steps import PartialSteps, matching_rate
from exec.training.ds_sync.planning import TrainingJob, equal_links, planned_for, require_agreement
from probes.base import UsageError
from synth.errors import NotApplicableError
from synth.groups import Groups
from synth.network import Network

__all__ = ["DivideAndShuffle"]

_log = logging.getLogger(__name__)

# Older records are dropped, so that a long training does not fill the memory.
_MOST_RECORDS = 10_000
_CLIPPING = (
    "DS-Sync steps each layer during the backward pass, before the gradients of all layers are known: "
    "operations that need them all, such as clipping by their norm or GradScaler, come too late"
)
_STEPPED = (
    "the backward pass has stepped the parameters, and optimizer.step() has not been called since: DS-Sync "
    "steps each layer during the backward pass. Run all micro-batches but the last in no_sync()"
)


class DivideAndShuffle(nn.Module):  # type: ignore[misc]  # torch is not there for mypy
    """``model``, trained by DS-Sync with ``optimizer`` on all ranks of the job; collective.

    - ``groups``: a plan, or a function that makes one on rank 0. None plans for links of equal cost.
    - ``bucket_bytes``: layers share a message until it has this size. 0 gives each layer its own message.
    - ``warmup``: the first iterations, in which all ranks average together.
    - ``swa_factor``: decay of each rank's moving average of parameters (SWA), from iteration ``swa_from`` on.
      None keeps no average.
    - ``adjust_every``: iterations between adjustments of the groups to slow links. 0 never adjusts.
    - ``network_now``: returns the current link costs on rank 0. None measures them when they are needed.
    - ``rate_factor``: multiplies learning rates. None uses `matching_rate`, with which the learning rates of
      DDP can be kept.

    Raises UsageError on all ranks for a model or an optimizer that cannot be trained this way.
    """

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        groups: Groups | Callable[[TrainingJob], Groups] | None = None,
        *,
        bucket_bytes: int = 1 << 20,
        warmup: int = 0,
        swa_factor: float | None = None,
        swa_from: int = 0,
        adjust_every: int = 100,
        network_now: Callable[[], Network] | None = None,
        rate_factor: float | None = None,
    ) -> None:
        super().__init__()
        if rate_factor is not None and not 0 < rate_factor < math.inf:
            raise UsageError(f"rate_factor: expected a number above 0, found {rate_factor}")
        if swa_factor is not None and not 0 <= swa_factor < 1:
            raise UsageError(f"swa_factor: expected a number from 0 to below 1, found {swa_factor}")
        self.module = model
        self.iteration = 0
        self._rank: int = dist.get_rank()
        self._ranks: int = dist.get_world_size()
        self._bucket_bytes, self._warmup = bucket_bytes, warmup
        self._swa_factor, self._swa_from = swa_factor, swa_from
        factor = matching_rate(optimizer, self._ranks) if rate_factor is None else rate_factor
        self._steps = PartialSteps(optimizer, factor)
        self._trained = self._trained_parameters()
        self._watch = Watch(self._touched)
        self._watch.check(self._trained)
        # The current backward pass; parameters are watched from its end on.
        self._backward = -1
        # Whether torch.compile has traced the model. It would recompile for watched parameters.
        self._compiled = False
        self._require_same_model()
        broadcast([*model.parameters(), *model.buffers()])
        self._number = {id(tensor): at for at, tensor in enumerate(self._trained)}
        self._averaged_buffers: list[Any] = []
        self._buffers_before: list[Any] | None = [tensor.detach().clone() for tensor in self._float_buffers()]
        self._buckets: list[AveragedBucket] = []
        self._called: set[int] = set()
        self._divide([])
        self._process_groups = ProcessGroups()
        found = self._planned(groups)
        device = next(model.parameters()).device
        self._adjustment = Adjustment(found, network_now, device) if found else None
        self._adjust_every = adjust_every
        self._adjustments: list[tuple[int, Groups]] = []
        self._records: deque[Communication] = deque(maxlen=_MOST_RECORDS)
        self._now: Iteration | None = None
        self._before: Iteration | None = None
        self._averaging = True
        # The numbers of parameters, in the order in which their gradients became complete.
        self._came: dict[int, None] = {}
        self._gradients: list[tuple[Any, Any, int]] = []
        # Gradients that the script has used, with copies to compare: GradScaler changes gradients without
        # raising their version counter.
        self._shown: list[tuple[Any, Any]] = []
        self._next = 0
        self._hook(optimizer)

    @property
    def groups(self) -> Groups | None:
        """The groups in use; None for a job of one rank."""
        return self._adjustment.groups if self._adjustment else None

    @property
    def records(self) -> tuple[Communication, ...]:
        """The averaging of the last completed iterations on this rank."""
        return tuple(self._records)

    @property
    def adjustments(self) -> tuple[tuple[int, Groups], ...]:
        """Each change of groups: its first iteration, and the new groups."""
        return tuple(self._adjustments)

    def forward(self, *args: Any, **options: Any) -> Any:
        return self.module(*args, **options)

    def train(self, mode: bool = True) -> DivideAndShuffle:
        """Set the mode like `torch.nn.Module.train`; before evaluation, wait for the averages."""
        if not mode:
            self.synchronize()
        super().train(mode)
        return self

    def synchronize(self) -> None:
        """Wait until this rank's parameters hold the averages of the last iteration."""
        for bucket in self._buckets:
            bucket.settle()
        self._keep_record()

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Accumulate gradients within the block, without steps or averages."""
        before, self._averaging = self._averaging, False
        try:
            yield
        finally:
            self._averaging = before

    def clip_grad_norm_(self, *_args: Any, **_options: Any) -> NoReturn:
        """Raise NotApplicableError, because parameters are stepped before all gradients are known."""
        raise NotApplicableError(_CLIPPING)

    def finish(self, samples: float | None = None) -> None:
        """Set all ranks' models to the mean of all replicas, or of their moving averages (SWA); collective.

        ``samples`` weights this rank by the number of its samples, if ranks differ. Buffers of integers
        become rank 0's.
        """
        self.synchronize()
        weight = self._weight(samples)
        ensemble = self._ensemble()
        with torch.no_grad():
            for tensor in [*self._trained, *self._float_buffers()]:
                row = ensemble.get(id(tensor), tensor).detach().reshape(-1) * weight
                dist.all_reduce(row)
                tensor.detach().copy_(row.view(tensor.shape))
        broadcast([buffer for buffer in self.module.buffers() if not buffer.is_floating_point()])

    @contextlib.contextmanager
    def consensus(self, samples: float | None = None) -> Iterator[None]:
        """Apply `finish` within the block, then restore this rank's replica; collective."""
        self.synchronize()
        tensors = [*self._trained, *self.module.buffers()]
        kept = [each.detach().clone() for each in tensors]
        self.finish(samples)
        try:
            yield
        finally:
            with torch.no_grad():
                for tensor, value in zip(tensors, kept, strict=True):
                    tensor.detach().copy_(value)

    def get_extra_state(self) -> dict[str, Any]:
        """Return the iteration and the moving averages, for a checkpoint of this rank."""
        self.synchronize()
        ensemble = self._ensemble()
        named = [*self.module.named_parameters(), *self.module.named_buffers()]
        return {
            "iteration": self.iteration,
            "averages": {name: ensemble[id(each)].clone() for name, each in named if id(each) in ensemble},
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.synchronize()
        self.iteration = state["iteration"]
        named = dict([*self.module.named_parameters(), *self.module.named_buffers()])
        averages = {id(named[name]): value for name, value in state["averages"].items()}
        for bucket in self._buckets:
            bucket.put_averages(averages)

    def _trained_parameters(self) -> list[Any]:
        optimized = {id(each) for each in self._steps.parameters()}
        parameters = list(self.module.parameters())
        if foreign := len(optimized - set(map(id, parameters))):
            raise UsageError(
                f"{foreign} of the optimizer's {len(optimized)} parameters are not the model's",
                hint="They would never be averaged: give DSSync one module that has them all.",
            )
        return [each for each in parameters if each.requires_grad and id(each) in optimized]

    def _require_same_model(self) -> None:
        named = [*self.module.named_parameters(), *self.module.named_buffers()]
        trained = set(map(id, self._trained))
        described = [(name, tuple(each.shape), str(each.dtype), id(each) in trained) for name, each in named]
        digests = gathered(hashlib.sha256(repr(described).encode()).hexdigest())
        if len(set(digests)) > 1:
            other = next(rank for rank, digest in enumerate(digests) if digest != digests[0])
            raise UsageError(
                f"rank {other}'s model differs from rank 0's in names, shapes, types or trained parameters"
            )

    def _planned(self, groups: Groups | Callable[[TrainingJob], Groups] | None) -> Groups | None:
        size_bytes = sum(bucket.size_bytes for bucket in self._buckets)
        hosts = tuple(gathered(socket.gethostname()))
        job = TrainingJob(hosts, max(1, size_bytes), max(1, len(self._buckets)))

        def make() -> Groups:
            if isinstance(groups, Groups):
                found = groups
            else:
                found = groups(job) if groups else planned_for(equal_links(job), job)
            require_agreement(found, job.ranks)
            return found

        if job.ranks == 1:
            return None
        found = agreed(make)
        self._process_groups.make(found.iterations)
        return found

    def _divide(self, order: Sequence[int]) -> None:
        """Divide layers into buckets.

        ``order`` has the numbers of parameters in the order of their gradients. If it is empty, the modules
        are taken in reverse order.
        """
        known = self._ensemble()
        place = {id(self._trained[number]): at for at, number in enumerate(order)}

        def complete(layer: Layer) -> float:
            return max((place.get(id(each), math.inf) for each in layer.parameters), default=math.inf)

        layers = layers_of(self.module, self._trained, self._averaged_buffers)
        if order:
            layers.sort(key=complete)
        self._buckets = buckets_of(layers, self._bucket_bytes)
        self._holding = {id(each): bucket for bucket in self._buckets for each in bucket.tensors}
        for bucket in self._buckets:
            bucket.put_averages(known)
        self._assign_waits()

    def _hook(self, optimizer: Any) -> None:
        for parameter in self._trained:
            parameter.register_post_accumulate_grad_hook(self._accumulated)
        before_forward = _Hook(torch.compiler.disable(self._before_forward))
        for module in self.module.modules():
            module.register_forward_pre_hook(before_forward)
        before_state = _Hook(lambda *_: self.synchronize())
        self.module.register_state_dict_pre_hook(before_state)
        self.module.register_load_state_dict_pre_hook(before_state)
        optimizer.register_step_pre_hook(self._before_step)
        optimizer.register_step_post_hook(self._after_step)

    def _before_forward(self, module: Any, _args: Any) -> None:
        if module is self.module and not _in_backward_pass() and self._has_stepped():
            raise NotApplicableError(_STEPPED, hint="Call the model again after optimizer.step().")
        if self.module.training:
            self._called.add(id(module))
        elif module is self.module:
            # In evaluation, modules may read parameters of modules that they do not call.
            self.synchronize()
        for bucket in self._waits.get(id(module), ()):
            bucket.settle()

    def _assign_waits(self) -> None:
        """Assign to each module the buckets that it must wait for before its forward pass.

        A module waits for its own tensors, and for the tensors of submodules whose forward is never called.
        """
        above: dict[int, Any] = {}
        for module in self.module.modules():
            for child in module.children():
                above.setdefault(id(child), module)
        self._waits: dict[int, list[AveragedBucket]] = {}
        self._waited_in = frozenset(self._called)
        for module in self.module.modules():
            tensors = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
            holder = module
            while id(holder) not in self._called and id(holder) in above:
                holder = above[id(holder)]
            waits = self._waits.setdefault(id(holder), [])
            for bucket in (self._holding.get(id(tensor)) for tensor in tensors):
                if bucket is not None and bucket not in waits:
                    waits.append(bucket)

    def _accumulated(self, parameter: Any) -> None:
        """Count a complete gradient; step its bucket if it was the last one, and start averages."""
        if not self._averaging:
            return
        if self._backward != (now := torch._C._current_graph_task_id()):
            self._backward = now
            torch.autograd.Variable._execution_engine.queue_callback(self._watch_stepped)
        number, bucket = self._number[id(parameter)], self._holding[id(parameter)]
        if number in self._came:
            raise UsageError(
                "a parameter got a second gradient in an iteration, after a step by the first: call "
                "optimizer.step() after each backward pass, and run all micro-batches but the last in "
                "no_sync()"
            )
        self._came[number] = None
        bucket.left -= 1
        if bucket.left == 0:
            self._step(bucket)
            self._launch(lambda bucket: bucket.stepped)

    def _has_stepped(self) -> bool:
        """Return whether parameters were stepped since the last `optimizer.step`."""
        return any(bucket.stepped for bucket in self._buckets)

    def _gradients_unchanged(self) -> bool:
        """Return whether gradients are unchanged since parameters were stepped by them."""
        same = all(each.grad is known and known._version == at for each, known, at in self._gradients)
        return same and all(
            torch.allclose(grad, kept, rtol=0.0, atol=0.0, equal_nan=True) for grad, kept in self._shown
        )

    def _watch_stepped(self) -> None:
        if not self._compiled:
            self._watch.arm(each for bucket in self._buckets if bucket.stepped for each in bucket.parameters)

    def _watch_averaged(self) -> None:
        """Watch tensors that wait for averages; wait now if compiled or if memory is shared."""
        shared = set(map(id, shared_memory(tensor for bucket in self._buckets for tensor in bucket.tensors)))
        for bucket in self._buckets:
            if self._compiled or any(id(tensor) in shared for tensor in bucket.tensors):
                bucket.settle()
            elif bucket.under_way:
                self._watch.arm(bucket.tensors)

    def _touched(self, tensor: Any, gradient: bool) -> bool:
        """Bring a used tensor up to date; return whether to keep watching it."""
        if _in_backward_pass():
            return True
        bucket = self._holding[id(tensor)]
        if gradient:
            if bucket.stepped and tensor.grad is not None:
                self._shown.append((tensor.grad, tensor.grad.clone()))
            return True
        if bucket.stepped:
            raise NotApplicableError(_STEPPED, hint="Read and change parameters after optimizer.step().")
        if torch._guards.TracingContext.try_get() is not None:
            self._compiled = True
            self.synchronize()
        bucket.settle()
        return False

    def _step(self, bucket: AveragedBucket) -> None:
        bucket.settle()
        given = [each for each in bucket.parameters if each.grad is not None]
        self._steps.step(given)
        bucket.stepped = True
        self._gradients += [(each, each.grad, each.grad._version) for each in given]

    def _launch(self, may: Callable[[AveragedBucket], bool]) -> None:
        """Start averages in bucket order, equal on all ranks, until ``may`` refuses a bucket."""
        while self._next < len(self._buckets) and may(self._buckets[self._next]):
            bucket = self._buckets[self._next]
            self._next += 1
            bucket.settle()
            if self._now is None:
                group = self._group()
                self._now = Iteration(self.iteration, group, self._process_groups.of(group))
            swa = self._swa_factor if self.iteration >= self._swa_from else None
            bucket.launch(len(self._now.group), self._now.reduce, swa)

    def _group(self) -> tuple[int, ...]:
        """Return the ranks with which this rank averages in this iteration."""
        groups = self.groups
        if groups is None or self.iteration < self._warmup:
            return tuple(range(self._ranks))
        return groups.group_of(self._rank, self.iteration)

    def _before_step(self, _optimizer: Any, args: Any, options: Any) -> None:
        """Hide from the optimizer's step the parameters that the backward pass has stepped."""
        if any(value is not None for value in (*args[1:], *options.values())):
            raise UsageError("optimizer.step: expected no closure, as DS-Sync steps during the backward pass")
        Watch.disarm(self._trained)
        if not self._gradients_unchanged():
            raise NotApplicableError(
                f"gradients were changed after the backward pass. {_CLIPPING}",
                hint="Do not change gradients between the backward pass and optimizer.step().",
            )
        for bucket in self._buckets:
            if not bucket.stepped:
                bucket.settle()
        self._steps.hide(each for bucket in self._buckets if bucket.stepped for each in bucket.parameters)

    def _after_step(self, _optimizer: Any, _args: Any, _options: Any) -> None:
        """End the iteration: average the remaining buckets, such as those without gradients."""
        self._steps.restore()
        self._steps.forget_groups()
        self._launch(lambda bucket: True)
        self._keep_record()
        self._before, self._now, self._next = self._now, None, 0
        self._gradients.clear()
        self._shown.clear()
        for bucket in self._buckets:
            bucket.begin()
        self.iteration += 1
        order, self._came = list(self._came), {}
        self._require_known_parameters()
        if self._buffers_before is not None:
            self._settle_order(order)
        elif self._called != self._waited_in:
            self._assign_waits()
        self._called = set()
        if self._adjust_every and self.iteration % self._adjust_every == 0:
            self._adjust()
        self._watch_averaged()

    def _keep_record(self) -> None:
        """Record the iteration before this one, whose averages are complete now."""
        if self._before is not None:
            self._records.append(self._before.record())
        self._before = None

    def _settle_order(self, arrived: list[int]) -> None:
        """Sort buckets by the order of rank 0's gradients, and add the buffers that change.

        Runs after the first iteration; collective.
        """
        self.synchronize()
        order = agreed(lambda: arrived)
        buffers, before = self._float_buffers(), self._buffers_before or []
        changed = gathered([not torch.equal(*both) for both in zip(buffers, before, strict=True)])
        normalizing = {
            id(buffer)
            for module in self.module.modules()
            if isinstance(module, _NormBase)
            for buffer in module.buffers(recurse=False)
        }
        self._averaged_buffers = [
            buffer
            for buffer, flags in zip(buffers, zip(*changed, strict=True), strict=True)
            if any(flags) or id(buffer) in normalizing
        ]
        self._buffers_before = None
        self._divide(order)

    def _adjust(self) -> None:
        """Change the groups if the slow parts have changed; collective."""
        self.synchronize()
        since = self.iteration - self._adjust_every
        records = [record for record in self._records if record.iteration >= since]
        if self._adjustment is None or not self._adjustment.look(self._rank, records):
            return
        groups = self._adjustment.groups
        self._process_groups.make(groups.iterations)
        self._adjustments.append((self.iteration, groups))
        if self._rank == 0:
            _log.warning(
                "DS-Sync: new groups from iteration %s on; slow racks: %s, slow ranks: %s",
                self.iteration,
                list(groups.slow_racks),
                list(groups.slow_ranks),
            )

    def _require_known_parameters(self) -> None:
        """Raise UsageError for a parameter that is trained now but was not when the wrapper was made."""
        for each in self._steps.parameters():
            if each.requires_grad and id(each) not in self._number:
                raise UsageError(
                    f"a parameter of shape {tuple(each.shape)} is trained, but was not when DSSync was made",
                    hint="Unfreeze it and give it to the optimizer before DSSync is made.",
                )

    def _float_buffers(self) -> list[Any]:
        return [buffer for buffer in self.module.buffers() if buffer.is_floating_point()]

    def _ensemble(self) -> dict[int, Any]:
        """Return the moving averages of this rank, by the ids of their tensors."""
        return {
            id(tensor): average
            for bucket in self._buckets
            if bucket.averages is not None
            for tensor, average in zip(bucket.tensors, bucket.split(bucket.averages), strict=True)
        }

    def _weight(self, samples: float | None) -> float:
        """Return this rank's share in the mean of all; collective."""
        given = gathered(samples)
        if all(count is None for count in given):
            return 1.0 / self._ranks
        known = [count for count in given if count is not None and count >= 0]
        if len(known) < len(given) or not sum(known):
            raise UsageError(f"samples: expected a number ≥ 0 from each rank, one above 0, found {given}")
        return known[self._rank] / sum(known)


def _in_backward_pass() -> bool:
    return bool(torch._C._current_graph_task_id() != -1)


class _Hook:
    """A module's hook whose copies do nothing, because the wrapper does not use copies of the module."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[..., None] | None) -> None:
        self._call = call

    def __call__(self, *args: Any) -> None:
        if self._call is not None:
            self._call(*args)

    def __deepcopy__(self, _memo: Any) -> _Hook:
        return _Hook(None)

    def __reduce__(self) -> tuple[Any, ...]:
        return _Hook, (None,)
