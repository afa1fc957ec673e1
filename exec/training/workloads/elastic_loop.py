"""Training that survives the loss of ranks: the remaining ranks take over the samples of lost ones."""

from __future__ import annotations

import hashlib
from time import perf_counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.utils import parameters_to_vector

from exec.adaptive import Session
from exec.sockets import Group
from exec.training.hooks import PATIENT, AdaptiveHook, ElasticSampler
from exec.training.workloads.data import Dataset, dataset
from exec.training.workloads.join import join_process_group
from exec.training.workloads.loop import TrainingCurve, accuracy_of, summed_up, whole_of
from exec.training.workloads.models import build, emulate_compute, optimizer_of
from exec.training.workloads.replicas import data_parallel
from exec.training.workloads.request import Mode, TrainRequest
from exec.training.workloads.traffic import sent_bytes
from probes.base import Safekeeping

__all__ = ["train_elastic"]


def train_elastic(comm: Group, request: TrainRequest, progress: Safekeeping) -> bool:
    """Train all modes by one adaptive session, and return True. The lowest live rank sends the reports."""
    torch.set_num_threads(1)
    # DDP needs the process group once, to check that all ranks have the same model.
    join_process_group(comm, "gloo", request.timeout_s)
    whole = whole_of(comm, request)
    session = Session(
        comm, request.network, policy=PATIENT, fence=getattr(progress, "fence", lambda rank: None)
    )
    if hasattr(progress, "on_lost"):
        progress.on_lost(lambda lost: comm.mesh.lose(lost.rank, lost.how, lost.start))
    if comm.Get_rank() == 0:
        progress.partial(whole(()))
    for number, mode in enumerate(request.modes):
        row = _train_mode(session, request, mode, progress, number, comm.Get_size())
        if session.rank == session.coordinator:
            progress.partial(whole((row,)))
    session.close()
    return True


def _train_mode(
    session: Session, request: TrainRequest, mode: Mode, progress: Safekeeping, number: int, ranks: int
) -> Any:
    """Train one mode and return its row; collective over the live ranks."""
    data = dataset(request.model, request.seed, request.examples)
    model = build(request.model, request.layers, request.width, request.seed)
    if request.compute_s:
        emulate_compute(model, request.compute_s)
    replica = data_parallel(mode, model)
    hook = AdaptiveHook(replica, session)
    done = number * request.steps

    def told(step: int) -> None:
        progress.update(done + step, len(request.modes) * request.steps, f"{mode.name}, iteration {step}")

    try:
        trained = _train_replica(hook, replica, request, data, ranks, told)
    finally:
        hook.close()
    row = parameters_to_vector(model.parameters()).detach().numpy()
    members = session.members
    own = trained, hashlib.sha256(row.tobytes()).hexdigest(), accuracy_of(model, data)
    found = session.gather("trained", own)
    every = found.values()
    # A rank that was lost in the last moment is still a member.
    lost = tuple(sorted({*session.lost, *members} - found.keys()))
    return summed_up(
        mode,
        request,
        [curve for curve, _, _ in every],
        _difference(session, row, [digest for _, digest, _ in every]),
        float(np.mean([share for _, _, share in every])),
        row,
        request.reference,
        "the others took over its share of each batch" if lost else "",
        lost,
    )


def _train_replica(
    hook: AdaptiveHook, replica: Any, request: TrainRequest, data: Dataset, ranks: int, report: Any
) -> TrainingCurve:
    """Train one replica on its share of each global batch, until all iterations are done."""
    session = hook.session
    optimizer = optimizer_of(request.model, replica.parameters())
    together = request.batch * ranks
    sampler = ElasticSampler(
        len(data.labels), together, session.rank, session.members, seed=request.seed, drop_last=True
    )
    examples = torch.utils.data.TensorDataset(data.inputs, data.labels)
    loader = torch.utils.data.DataLoader(examples, batch_sampler=sampler)
    curve, before_bytes, step, epoch = TrainingCurve(), 0, 0, 0
    while step < request.steps:
        for inputs, labels in hook.batches(loader, epoch):
            report(step)
            if step == request.warmup:
                before_bytes = sent_bytes()
            begin_s = perf_counter()
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(replica(inputs), labels)
            loss.backward()
            optimizer.step()
            curve.losses.append(float(loss.detach()))
            curve.times_s.append(perf_counter() - begin_s)
            step += 1
            if step % request.evaluate == 0 or step == request.steps:
                curve.evaluated.append(step)
                curve.accuracies.append(accuracy_of(replica.module, data))
            if step == request.steps:
                break
        epoch += 1
    curve.sent_bytes = sent_bytes() - before_bytes
    return curve


def _difference(session: Session, row: NDArray[np.float32], digests: list[str]) -> float:
    """Return the largest difference between the ranks in an element of ``row``; collective."""
    if len(set(digests)) == 1:
        return 0.0
    every = np.array(list(session.gather("parameters", row).values()))
    return float((every.max(axis=0) - every.min(axis=0)).max())
