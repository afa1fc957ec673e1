"""Methods to synchronize replicas: their actions before forward, after backward, and at the end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from exec.published import synchronizer
from exec.training.workloads.models import optimizer_of, shape_of
from exec.training.workloads.request import Mode, TrainRequest
from probes.base import UnavailableError, plural
from synth.fusion import RingCosts, fusion_plan
from synth.groups import Groups

__all__ = ["Replica", "data_parallel", "groups_of_hosts", "replica_of"]

# Trials of Horovod's buffer size and timed iterations of each: the defaults of DeAR's tuning.
_TRIALS, _TRIAL_STEPS = 10, 10


def _nothing() -> None:
    """Do nothing: the default of the optional steps."""


@dataclass(frozen=True, eq=False)
class Replica:
    """One rank's model, and the actions of a method that synchronizes it with other ranks.

    An iteration calls ``before``, then ``forward`` for the loss, then, after the backward pass, ``after``,
    which also steps the optimizer. ``settle`` waits until ``model`` is up to date. ``finish`` averages the
    replicas after training; by default it does nothing. ``close`` frees resources.
    """

    model: torch.nn.Module
    forward: Callable[[Any], Any]
    before: Callable[[], None]
    after: Callable[[], None]
    settle: Callable[[], None] = _nothing
    finish: Callable[[], None] = _nothing
    close: Callable[[], None] = _nothing
    note: str = ""


def replica_of(mode: Mode, request: TrainRequest, model: torch.nn.Module, hosts: list[int]) -> Replica:
    """Return this rank's replica; collective. ``hosts`` has the number of each rank's host."""
    made: dict[str, Callable[..., Replica]] = {
        "none": _none,
        "ddp": _ddp,
        "dear": _dear,
        "dear-nl": _dear,
        "horovod": _horovod,
        "horovod-tuned": _horovod,
        "ds-sync": _ds_sync,
        "asp": _asp,
        "gossip": _gossip,
        "hierarchical": _hierarchical,
    }
    return made[mode.name](mode, request, model, hosts)


def groups_of_hosts(request: TrainRequest, hosts: list[int]) -> tuple[tuple[int, ...], ...]:
    """Return the requested groups, or else the ranks of each host, or else pairs of ranks.

    Pairs are used if all ranks are on one host, or each is on a host of its own.
    """
    if request.racks:
        return request.racks
    ranks = range(len(hosts))
    by_host = [tuple(rank for rank in ranks if hosts[rank] == host) for host in sorted(set(hosts))]
    if 1 < len(by_host) < len(hosts):
        return tuple(by_host)
    return tuple(tuple(ranks[first : first + 2]) for first in range(0, len(hosts), 2))


def _none(mode: Mode, request: TrainRequest, model: torch.nn.Module, hosts: list[int]) -> Replica:
    optimizer = optimizer_of(request.model, model.parameters())
    return Replica(model, model, optimizer.zero_grad, optimizer.step, note="each rank alone")


def data_parallel(mode: Mode, model: torch.nn.Module) -> Any:
    """Return PyTorch's DistributedDataParallel of ``model``, with the buckets of ``mode``."""
    limit = {"bucket_cap_mb": mode.bucket_bytes / (1 << 20)} if mode.bucket_bytes else {}
    return DistributedDataParallel(model, broadcast_buffers=False, **limit)


def _ddp(mode: Mode, request: TrainRequest, model: torch.nn.Module, hosts: list[int]) -> Replica:
    replica, optimizer = data_parallel(mode, model), optimizer_of(request.model, model.parameters())
    return Replica(model, replica, optimizer.zero_grad, optimizer.step)


def _hierarchical(mode: Mode, request: TrainRequest, model: torch.nn.Module, hosts: list[int]) -> Replica:
    groups = groups_of_hosts(request, hosts)
    method = synchronizer("hierarchical")(groups)
    replica, optimizer = data_parallel(mode, model), optimizer_of(request.model, model.parameters())
    # DDP accepts only its own annotations on a hook; a lambda has none.
    replica.register_comm_hook(None, lambda state, bucket: method.hook(state, bucket))
    listed = " ".join("{" + ", ".join(map(str, group)) + "}" for group in groups)
    return Replica(
        model, replica, optimizer.zero_grad, optimizer.step, close=method.close, note=f"groups {listed}"
    )


def _horovod(mode: Mode, request: TrainRequest, model: torch.nn.Module, hosts: list[int]) -> Replica:
    tuning, note = None, f"a cycle of {1e3 * request.cycle_s:g} ms"
    if mode.name == "horovod-tuned":
        from exec.training.dear import Retuning
        from synth.fusion import begun

        device = next(model.parameters()).device
        tuning = Retuning(begun("bo"), _TRIALS, _TRIAL_STEPS, dist.group.WORLD, device)
        note += f", buffers tuned in the first {plural(_TRIALS * (_TRIAL_STEPS + 1), 'iteration')}"
    method = synchronizer("horovod")(model, request.cycle_s, mode.bucket_bytes, tuning)
    return _on_both_sides(method, request, model, close=method.close, note=note)


def _gossip(mode: Mode, request: TrainRequest, model: torch.nn.Module, hosts: list[int]) -> Replica:
    method = synchronizer("gossip")(model)
    return _on_both_sides(
        method, request, model, finish=method.average_all, note="the mean of all at the end"
    )


def _on_both_sides(method: Any, request: TrainRequest, model: torch.nn.Module, **others: Any) -> Replica:
    """Return a replica whose ``method`` starts before the forward pass and ends after the backward pass."""
    optimizer = optimizer_of(request.model, model.parameters())

    def before() -> None:
        optimizer.zero_grad()
        method.before_forward()

    def after() -> None:
        method.after_backward()
        optimizer.step()

    return Replica(model, model, before, after, **others)


def _asp(mode: Mode, request: TrainRequest, model: torch.nn.Module, hosts: list[int]) -> Replica:
    if request.backend == "nccl":
        raise UnavailableError("asp: its servers receive on threads, which NCCL does not allow")
    method = synchronizer("asp")(
        model, lambda parameters: optimizer_of(request.model, parameters), request.steps
    )
    note = f"a server a rank, each gradient at 1/{len(hosts)} of the rate, all over gloo"
    return Replica(
        model,
        model,
        lambda: model.zero_grad(),
        method.after_backward,
        finish=method.finish,
        close=method.close,
        note=note,
    )


def _ds_sync(mode: Mode, request: TrainRequest, model: torch.nn.Module, hosts: list[int]) -> Replica:
    from exec.training.ds_sync import DivideAndShuffle, TrainingJob, equal_links, planned_for
    from synth.groups import plan_groups

    def planned(job: TrainingJob) -> Groups:
        network = request.network or equal_links(job)
        if not request.racks:
            return planned_for(network, job)
        return plan_groups(network, job.size_bytes, racks=request.racks, layers=job.messages).groups

    optimizer = optimizer_of(request.model, model.parameters())
    limit: dict[str, Any] = {"bucket_bytes": mode.bucket_bytes} if mode.bucket_bytes else {}
    method = DivideAndShuffle(model, optimizer, planned, warmup=request.warmup, **limit)
    used = method.groups
    note = f"all ranks average in the first {plural(request.warmup, 'iteration')}"
    if used is not None:
        note += f", then groups by the pattern {used.pattern}, period {used.period}"
    return Replica(
        model,
        method,
        optimizer.zero_grad,
        optimizer.step,
        settle=method.synchronize,
        finish=method.finish,
        note=f"{note}; the mean of all at the end",
    )


def _dear(mode: Mode, request: TrainRequest, model: torch.nn.Module, hosts: list[int]) -> Replica:
    from exec.training.dear import DistributedOptimizer

    plan: Any = mode.bucket_bytes or None
    if mode.name == "dear-nl":
        # Times do not influence which layers share a bucket.
        plan = fusion_plan(shape_of(model, 1e-3), RingCosts(len(hosts), 0.0, 1e-9), mode.name)
    optimizer = DistributedOptimizer(optimizer_of(request.model, model.parameters()), model, plan)
    note = plural(len(optimizer.buckets), "bucket")
    return Replica(model, model, optimizer.zero_grad, optimizer.step, settle=optimizer.synchronize, note=note)
