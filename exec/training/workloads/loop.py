"""Training of each mode in turn on every rank, and collection of the results."""

from __future__ import annotations

import hashlib
import socket
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch.nn.utils import parameters_to_vector

from exec.benchmark import Spread, machine
from exec.sockets import Group
from exec.training.workloads.data import Dataset, dataset, indices
from exec.training.workloads.join import device_of, join_process_group
from exec.training.workloads.models import build, emulate_compute, layers_of
from exec.training.workloads.replicas import Replica, replica_of
from exec.training.workloads.report import TrainedMode, TrainingReport
from exec.training.workloads.request import Mode, TrainRequest
from exec.training.workloads.traffic import sent_bytes
from probes.base import Safekeeping, floats, longs

__all__ = ["TrainingCurve", "accuracy_of", "summed_up", "train_all", "whole_of"]


@dataclass
class TrainingCurve:
    """One rank's loss and seconds in each iteration, and its accuracy on held-out data."""

    losses: list[float] = field(default_factory=list)
    times_s: list[float] = field(default_factory=list)
    evaluated: list[int] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)
    sent_bytes: int = 0


def train_all(comm: Group, request: TrainRequest, progress: Safekeeping) -> NDArray[np.float32] | None:
    """Train all modes on the ranks of ``comm``; return DDP's final parameters, if DDP is among the modes.

    Rank 0 sends a report at the start, without rows, and another after each mode.
    """
    torch.set_num_threads(1)
    device = device_of(request.backend, comm)
    join_process_group(comm, request.backend, request.timeout_s)
    try:
        whole = whole_of(comm, request)
        if comm.Get_rank() == 0:
            progress.partial(whole(()))
        reference = request.reference
        for number, mode in enumerate(request.modes):
            row, parameters = _train_mode(comm, request, mode, device, reference, progress, number)
            if mode.name == "ddp" and reference is None:
                reference = parameters
            if comm.Get_rank() == 0:
                progress.partial(whole((row,)))
        return reference
    finally:
        dist.destroy_process_group()


def whole_of(comm: Group, request: TrainRequest) -> Any:
    """Return a function from rows to the report of this run; collective."""
    model = build(request.model, request.layers, request.width, request.seed)
    hosts = tuple(dict.fromkeys(comm.allgather(socket.gethostname())))
    facts = machine(comm) | {"torch": str(torch.__version__)}
    size_bytes = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())

    def report(rows: tuple[TrainedMode, ...]) -> TrainingReport:
        return TrainingReport(
            model=request.model,
            layers=len(layers_of(model)),
            parameter_bytes=size_bytes,
            ranks=comm.Get_size(),
            hosts=hosts,
            backend=request.backend,
            steps=request.steps,
            warmup=request.warmup,
            batch=request.batch,
            compute_s=request.compute_s,
            target=request.accuracy,
            seed=request.seed,
            rows=rows,
            machine=facts,
        )

    return report


def _train_mode(
    comm: Group,
    request: TrainRequest,
    mode: Mode,
    device: torch.device,
    reference: NDArray[np.float32] | None,
    progress: Safekeeping,
    number: int,
) -> tuple[TrainedMode, NDArray[np.float32]]:
    """Train one mode; return (row of the report, final parameters), the same on all ranks; collective."""
    data = dataset(request.model, request.seed, request.examples).to(device)
    model = build(request.model, request.layers, request.width, request.seed).to(device)
    if request.compute_s:
        emulate_compute(model, request.compute_s)
    replica = replica_of(mode, request, model, comm.mesh.host)
    try:
        comm.Barrier()
        done = number * request.steps

        def told(step: int) -> None:
            progress.update(done + step, len(request.modes) * request.steps, f"{mode.name}, iteration {step}")

        curve = _train_replica(replica, request, data, comm, told)
        difference = _spread_of(comm, parameters_to_vector(model.parameters()).detach())
        replica.finish()
        final = parameters_to_vector(model.parameters()).detach()
        accuracy = float(np.mean(comm.allgather(accuracy_of(model, data))))
        parameters = final.cpu().numpy()
        row = summed_up(
            mode, request, comm.allgather(curve), difference, accuracy, parameters, reference, replica.note
        )
        comm.Barrier()
        return row, parameters
    finally:
        replica.close()


def _train_replica(
    replica: Replica, request: TrainRequest, data: Dataset, comm: Group, report: Any
) -> TrainingCurve:
    """Train one replica; return its losses, accuracies, and the time of each iteration without evaluation."""
    rank, size = comm.Get_rank(), comm.Get_size()
    curve, before_bytes = TrainingCurve(), 0
    for step in range(request.steps):
        report(step)
        if step == request.warmup:
            before_bytes = sent_bytes()
        chosen = indices(step, request.batch, rank, size, request.seed, len(data.labels))
        chosen = chosen.to(data.labels.device)
        inputs, labels = data.inputs[chosen], data.labels[chosen]
        begin_s = perf_counter()
        replica.before()
        loss = torch.nn.functional.cross_entropy(replica.forward(inputs), labels)
        loss.backward()
        replica.after()
        evaluates = (step + 1) % request.evaluate == 0 or step + 1 == request.steps
        if evaluates:
            replica.settle()
        curve.losses.append(float(loss.detach()))
        curve.times_s.append(perf_counter() - begin_s)
        if evaluates:
            curve.evaluated.append(step + 1)
            curve.accuracies.append(accuracy_of(replica.model, data))
    # After the barrier, this rank has sent everything that other ranks need.
    comm.Barrier()
    curve.sent_bytes = sent_bytes() - before_bytes
    return curve


def summed_up(
    mode: Mode,
    request: TrainRequest,
    curves: list[TrainingCurve],
    difference: float,
    accuracy: float,
    parameters: NDArray[np.float32],
    reference: NDArray[np.float32] | None,
    note: str,
    lost: tuple[int, ...] = (),
) -> TrainedMode:
    """Return the row of one mode from each rank's curve."""
    times_s = np.array([curve.times_s for curve in curves])
    timed_s = times_s[:, request.warmup :]
    mean_s = timed_s.mean(axis=0)
    least, p25, p50, p75, most = np.percentile(mean_s, (0, 25, 50, 75, 100)).tolist()
    evaluated = np.array(curves[0].evaluated)
    start_s = max(0.0, float(times_s[:, 0].mean()) - p50)
    evaluated_s = times_s.mean(axis=0).cumsum()[evaluated - 1] - start_s
    accuracies = np.mean([curve.accuracies for curve in curves], axis=0)
    reached = np.flatnonzero(accuracies >= request.accuracy)
    sent = np.array([curve.sent_bytes for curve in curves]) / timed_s.shape[1]
    return TrainedMode(
        mode=mode.name,
        bucket_bytes=mode.bucket_bytes,
        time_s=p50,
        spread=Spread(least, p25, p75, most, float(mean_s.std()), len(mean_s)),
        rank_s=tuple(timed_s.mean(axis=1).tolist()),
        wire_bytes=float(sent.mean()),
        most_wire_bytes=float(sent.max()),
        losses=floats(np.mean([curve.losses for curve in curves], axis=0)),
        evaluated=longs(evaluated),
        evaluated_s=floats(evaluated_s),
        accuracies=floats(accuracies),
        accuracy=accuracy,
        reached_s=float(evaluated_s[reached[0]]) if len(reached) else None,
        replica_difference=difference,
        ddp_difference=None if reference is None else float(np.abs(parameters - reference).max()),
        lost=lost,
        note=note,
        start_s=start_s,
    )


def accuracy_of(model: torch.nn.Module, data: Dataset) -> float:
    """Return the share of the held-out data that ``model`` classifies correctly."""
    model.eval()
    with torch.no_grad():
        found = model(data.held_inputs).argmax(1)
    model.train()
    return float((found == data.held_labels).double().mean())


def _spread_of(comm: Group, row: Any) -> float:
    """Return the largest difference between the ranks in an element of ``row``; collective."""
    digest = hashlib.sha256(row.cpu().numpy().tobytes()).hexdigest()
    if len(set(comm.allgather(digest))) == 1:
        return 0.0
    most, least = row.clone(), row.clone()
    dist.all_reduce(most, dist.ReduceOp.MAX)
    dist.all_reduce(least, dist.ReduceOp.MIN)
    return float((most - least).max())
