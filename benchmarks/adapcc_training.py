"""AdapCC's Figures 14 to 17 and 19b in emulation: the gains of training by its schedules and by relays.

    python benchmarks/training_tables.py fig14 fig15 fig16 fig19b

Four hosts of four GPUs, simulated: A100 with a NIC of 100 Gb/s each ("homo"), or two hosts of A100 and two of
V100 with one of 50 Gb/s ("heter"). NCCL is the ring (of an all_to_all, direct sends), for which every rank
waits for the last. Ours is the better of a hierarchical schedule and a forest of trees (of an all_to_all, the
best of three), with the session's rule when to go on without late ranks. As in the paper, communication is
counted from the time at which the first rank is ready. The paper has no figures for these inputs, so they are
inferred:

- Lateness: the GPUs of a host are ready together. Hosts lag exponentially; those of V100 lag in addition by a
  constant, twice the mean. Times are scaled so that in the median the first host waits as long as Fig. 3b
  tells of GPT2: 10 % of NCCL's communication in homo, 23 % in heter; for other batches in proportion.
- TCP: a connection carries 20 Gb/s (Sec. VI-D). NCCL has one between two hosts, ours four (M = 4). In homo
  this alone makes ours over three times as fast, while the paper's figure is at most 1.3. So its NCCL must
  have had more than its text says.
- Figs. 16, 17: a batch of 16 (GPT2) or 128 (ViT) is computed in 100 ms on the fastest GPU. Either all GPUs of
  a host are late, or one GPU of each host, by the same times. In both cases each phase takes as long at the
  NICs as an all_reduce, so relays gain nothing, and lose up to 7 % of the throughput. The gain comes from the
  schedule and shrinks with the batch, while the paper's grows.
- Fig. 15: for GPT2, how often the session's rule makes relays of a host's GPUs. Lateness is an input, so this
  shows that the rule follows lateness, not that slower GPUs are late.
- Fig. 19b: no ImageNet. A network of one hidden layer learns 10 classes on 4 workers, of which one is late in
  half of all steps and alone sees two of the classes. AdapCC's way runs for real, in a session of four ranks
  on this host, of which the last is late by 30 ms. The other ways are computed in one process.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, reduce
from itertools import product
from typing import Any

import numpy as np

from exec.adaptive.session import Session
from exec.launcher.run import launch
from exec.sockets.group import Group
from exec.stragglers.arrivals import Arrivals
from exec.stragglers.buy_cost import SimulatedCosts
from exec.stragglers.policies import replay_arrivals
from probes.base.columns import Floats, Mask
from synth import Request, synthesize
from synth.collective import Kind
from synth.network import Link, Network, build
from synth.schedules import Schedule
from synth.simulation.schedule import replay

__all__ = ["fig14", "fig15", "fig16", "fig19b"]

GPUS, HOSTS, ITERATIONS = 4, 4, 300
SIZE_BYTES = 512 << 20
# Bytes of gradients, or of tokens; the paper's MOE runs an all_to_all.
MODELS: dict[str, tuple[int, Kind]] = {
    "VGG16": (528_000_000, "all_reduce"),
    "GPT2": (475_000_000, "all_reduce"),
    "ViT": (208_000_000, "all_reduce"),
    "MOE": (512_000_000, "all_to_all"),
}
FLOW_GB_PER_S, FLOWS = 2.5, 4
WAIT_RATIO = {"homo": 0.10, "heter": 0.23}
COMPUTE_S = 0.1


def network(setting: str, wires: str, flows: int) -> Network:
    """Return the network of the 16 GPUs; two hosts share NICs and, over TCP, ``flows`` connections."""
    hosts = [(300.0, 12.5)] * 4 if setting == "homo" else [(300.0, 12.5)] * 2 + [(150.0, 6.25)] * 2
    links = []
    for src in range(GPUS * HOSTS):
        for dst in range(GPUS * HOSTS):
            (inside, nic), (_, other) = hosts[src // GPUS], hosts[dst // GPUS]
            if src == dst:
                continue
            if src // GPUS == dst // GPUS:
                links.append(Link(src, dst, 1e-6, 1e-9 / inside))
                continue
            rate = min(nic, other, FLOW_GB_PER_S * flows if wires == "TCP" else nic)
            ports = f"{src // GPUS} out", f"{dst // GPUS} in"
            links.append(Link(src, dst, 5e-6 if wires == "RDMA" else 30e-6, 1e-9 / rate, ports))
    return build(f"{setting} {wires}", [f"h{at // GPUS}" for at in range(GPUS * HOSTS)], links)


@dataclass(frozen=True, eq=False)
class Ways:
    """Seconds of NCCL for SIZE_BYTES, and our schedule with the times of its phases."""

    nccl_s: float
    ours: Schedule
    costs: SimulatedCosts


@cache
def ways(setting: str, wires: str, kind: Kind) -> Ways:
    """Return both ways on one network; at these sizes times are proportional to bytes."""
    theirs = _best(network(setting, wires, 1), kind, ("ring",) if kind == "all_reduce" else ("direct",))
    methods = ("hierarchical", "forest") if kind == "all_reduce" else ("direct", "two_step", "paths")
    ours = _best(network(setting, wires, FLOWS), kind, methods)
    return Ways(replay(theirs).time_s, ours, SimulatedCosts(ours, [ours]))


def _best(on: Network, kind: Kind, methods: Sequence[str]) -> Schedule:
    found = [
        synthesize(Request(on, kind, size_bytes=SIZE_BYTES, method=method)).schedule for method in methods
    ]
    return min(found, key=lambda schedule: replay(schedule).time_s)


def lags(setting: str, wait_s: float, seed: int = 0, *, single: bool = False) -> Floats:
    """Return when each GPU is ready in each iteration; if ``single``, only the last of each host is late.

    In the median the first GPU waits ``wait_s`` for the last.
    """
    chance = np.random.default_rng(seed)
    host_s = chance.exponential(1.0, (ITERATIONS, HOSTS))
    if setting == "heter":
        host_s[:, 2:] += 2.0
    host_s -= host_s.min(axis=1, keepdims=True)
    host_s *= wait_s / np.median(host_s.max(axis=1))
    late = np.arange(GPUS) == GPUS - 1 if single else np.ones(GPUS, dtype=bool)
    return np.kron(host_s, late)


@dataclass(frozen=True)
class Communication:
    """Mean seconds of an iteration's communication, and how often it went on without some ranks.

    ``relayed`` is the share of iterations in which each rank was a relay.
    """

    nccl_s: float
    waiting_s: float
    ours_s: float
    went: float
    relayed: Floats


def communication(
    setting: str, wires: str, size_bytes: int, kind: Kind, wait_s: float, *, single: bool = False
) -> Communication:
    """Return the communication of NCCL, of our schedule when all wait, and of our schedule with relays."""
    found, scale = ways(setting, wires, kind), SIZE_BYTES / size_bytes
    # Rather than all schedules anew for each size: time in units of what SIZE_BYTES take.
    ready_s = lags(setting, wait_s, single=single) * scale
    last_s = ready_s.max(axis=1)
    nccl_s, waiting_s = ((last_s + seconds).mean() / scale for seconds in (found.nccl_s, found.costs.whole_s))
    policies = replay_arrivals(Arrivals.of(ready_s), found.costs, cycle_s=5e-3 * scale)
    chosen = policies.policies["break_even_extra"]
    assert chosen.completion_s is not None
    ours_s, went = chosen.completion_s.mean() / scale, float(chosen.went.mean())
    return Communication(nccl_s, waiting_s, ours_s, went, policies.relayed.mean(axis=0))


def fig14() -> None:
    """Print the communication time over NCCL's; the paper: 1.12 to 1.30 in homo, up to 2 in heter."""
    print("\nFig. 14: communication, NCCL / ours (paper: homo 1.12-1.30, heter up to 2)")
    print(f"{'':12} {'model':6} {'NCCL':>9} {'schedule':>9} {'+ relays':>9} {'went on without':>16}")
    for setting, ratio in WAIT_RATIO.items():
        for wires in ("RDMA", "TCP"):
            for name, (size, kind) in MODELS.items():
                wait_s = ratio * ways(setting, wires, kind).nccl_s * size / SIZE_BYTES
                found = communication(setting, wires, size, kind, wait_s)
                print(
                    f"{setting + ' ' + wires:12} {name:6} {1e3 * found.nccl_s:6.1f} ms "
                    f"{found.nccl_s / found.waiting_s:9.2f} {found.nccl_s / found.ours_s:9.2f} "
                    f"{100 * found.went:14.0f} %",
                    flush=True,
                )


def fig15() -> None:
    """Print how often each host's GPUs are relays.

    In the paper all are relays equally often in homo, and slower GPUs more often in heter.
    """
    print("\nFig. 15: relays in % of iterations, GPT2, RDMA (paper: homo even, heter slower GPUs more)")
    size, kind = MODELS["GPT2"]
    for setting, ratio in WAIT_RATIO.items():
        for times in (1, 8):
            wait_s = times * ratio * ways(setting, "RDMA", kind).nccl_s * size / SIZE_BYTES
            found = communication(setting, "RDMA", size, kind, wait_s)
            shares = " ".join(f"{100 * share:.0f}" for share in found.relayed[::GPUS])
            print(f"{setting:6} batch {16 * times:4}, by host: {shares}", flush=True)


def fig16() -> None:
    """Print the throughput by batch in heter; the paper: up to 31 % (GPT2) and 20 % (ViT) above NCCL."""
    print("\nFigs. 16, 17: throughput over NCCL's, heter, RDMA (paper: up to 1.31 and 1.20, growing)")
    for name, batch in (("GPT2", 16), ("ViT", 128)):
        size, kind = MODELS[name]
        for times, single in product((0.5, 1, 2, 4, 8), (False, True)):
            wait_s = times * WAIT_RATIO["heter"] * ways("heter", "RDMA", kind).nccl_s * size / SIZE_BYTES
            found = communication("heter", "RDMA", size, kind, wait_s, single=single)
            who = "single GPUs" if single else "whole hosts"
            nccl_s, waiting_s, ours_s = (
                times * COMPUTE_S + seconds for seconds in (found.nccl_s, found.waiting_s, found.ours_s)
            )
            print(
                f"{name:6} batch {int(times * batch):5}, {who} late: schedule {nccl_s / waiting_s:5.2f}, "
                f"with relays {nccl_s / ours_s:5.2f}, went on without some in "
                f"{100 * found.went:3.0f} % of iterations"
            )


CLASSES, FEATURES, HIDDEN, WORKERS, STEPS, BATCH = 10, 20, 64, 4, 400, 32
LATE_S = 0.03


def _samples(chance: np.random.Generator, count: int, skewed: bool) -> tuple[Floats, np.ndarray]:
    """Return points around two centres of each class; if ``skewed``, half are of the first two classes."""
    labels = chance.integers(0, CLASSES, count)
    if skewed:
        labels = np.where(chance.random(count) < 0.5, labels % 2, 2 + labels % (CLASSES - 2))
    else:
        labels = np.where(labels < 2, 2 + labels, labels)
    return _points(chance, labels), labels


def _points(chance: np.random.Generator, labels: np.ndarray) -> Floats:
    centres = np.random.default_rng(9).normal(0, 1.0, (2, CLASSES, FEATURES))
    centre: Floats = centres[chance.integers(0, 2, len(labels)), labels]
    return centre + chance.normal(0, 0.9, (len(labels), FEATURES))


def _gradient(weights: list[Floats], inputs: Floats, labels: np.ndarray) -> list[Floats]:
    """Return the gradient of the mean cross entropy of a network with one hidden layer."""
    hidden = np.maximum(inputs @ weights[0], 0)
    scores = hidden @ weights[1]
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    odds /= odds.sum(axis=1, keepdims=True)
    odds[np.arange(len(labels)), labels] -= 1
    odds /= len(labels)
    return [inputs.T @ ((odds @ weights[1].T) * (hidden > 0)), hidden.T @ odds]


def _first_weights(seed: int) -> list[Floats]:
    sizes = (FEATURES, HIDDEN), (HIDDEN, CLASSES)
    return [
        np.random.default_rng([seed, at]).normal(0, size[0] ** -0.5, size).astype(np.float32)
        for at, size in enumerate(sizes, 2)
    ]


def _late(seed: int) -> Mask:
    """Return the mask of the steps in which the last worker is late."""
    return np.random.default_rng([seed, 1]).random(STEPS) < 0.5


def _gradients(weights: list[Floats], chance: np.random.Generator) -> list[Floats]:
    """Return each worker's gradient of one step, flat."""
    given = [_samples(chance, BATCH, skewed=worker == WORKERS - 1) for worker in range(WORKERS)]
    return [
        np.concatenate([part.astype(np.float32).reshape(-1) for part in _gradient(weights, *one)])
        for one in given
    ]


def _step(weights: list[Floats], total: Floats, workers: int) -> None:
    """Step down the mean gradient of ``workers`` workers."""
    first = 0
    for weight in weights:
        weight -= np.float32(0.2 / workers) * total[first : first + weight.size].reshape(weight.shape)
        first += weight.size


def _accuracy(weights: list[Floats]) -> float:
    held = np.random.default_rng(77)
    labels = held.integers(0, CLASSES, 4000)
    found = (np.maximum(_points(held, labels) @ weights[0], 0) @ weights[1]).argmax(axis=1)
    return float((found == labels).mean())


@dataclass(frozen=True, eq=False)
class Trained:
    """The accuracy after each quarter, all weights, and the share of steps with relays."""

    accuracies: tuple[float, ...]
    weights: Floats
    relayed: float = 0.0


def trained(way: str, seed: int) -> Trained:
    """Train by one way and return the result; the late steps are the same for all ways."""
    if way == "adapcc":
        found: Trained = launch(
            "adapcc_training:by_session", seed, ranks=WORKERS, wires="sockets", timeout_s=600
        )
        return found
    chance, late, weights = np.random.default_rng(seed), _late(seed), _first_weights(seed)
    accuracies = []
    for step in range(STEPS):
        every = _gradients(weights, chance)
        if way == "relay async" and late[step]:
            every.pop()
        _step(weights, reduce(np.add, every), len(every))
        if (step + 1) % (STEPS // 4) == 0:
            accuracies.append(_accuracy(weights))
    return Trained(tuple(accuracies), np.concatenate([weight.reshape(-1) for weight in weights]))


def by_session(comm: Group, seed: int, progress: Any) -> Trained | None:
    """Train on each rank with the all_reduces of a session; return the result on rank 0, None on others."""
    chance, late, weights = np.random.default_rng(seed), _late(seed), _first_weights(seed)
    session = Session(comm, fence=progress.fence)
    session.setup(sum(weight.size for weight in weights))
    accuracies = []
    for step in range(STEPS):
        mine = _gradients(weights, chance)[session.rank]
        if late[step] and session.rank == WORKERS - 1:
            time.sleep(LATE_S)
        _step(weights, session.all_reduce(mine).wait(), WORKERS)
        if (step + 1) % (STEPS // 4) == 0:
            accuracies.append(_accuracy(weights))
    comm.named("end").Barrier()
    relayed = sum(len(one.parts) > 1 for one in session.seen) / STEPS
    session.close()
    if session.rank:
        return None
    return Trained(tuple(accuracies), np.concatenate([weight.reshape(-1) for weight in weights]), relayed)


def fig19b() -> None:
    """Print accuracies; the paper: AdapCC as NCCL, worse where late tensors are dropped."""
    print(
        "\nFig. 19b: accuracy after each quarter, mean of 5 seeds (paper: AdapCC as NCCL, Relay Async worse)"
    )
    every = {way: [trained(way, seed) for seed in range(5)] for way in ("nccl", "adapcc", "relay async")}
    for way, found in every.items():
        quarters = np.mean([one.accuracies for one in found], axis=0)
        off = max(
            float(np.abs(one.weights - nccl.weights).max())
            for one, nccl in zip(found, every["nccl"], strict=True)
        )
        relayed = f", relays in {100 * np.mean([one.relayed for one in found]):.0f} % of the steps"
        print(
            f"{way:12} "
            + " ".join(f"{100 * each:5.1f} %" for each in quarters)
            + f"   weights off by {off:.1e}"
            + (relayed if way == "adapcc" else "")
        )
