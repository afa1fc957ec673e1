"""Modes trained for real, on two ranks of this host: what each must hold whatever the times."""

import contextlib
from dataclasses import replace

import numpy as np
import psutil
import pytest

from exec.launcher.run import World, run_ranks
from exec.launcher.run_folders import RANK
from exec.training.workloads.request import Mode, TrainRequest
from probes.base.progress import Progress

torch = pytest.importorskip("torch")
# The start of ranks compiles some loops if none has been compiled yet.
LIMIT_S = 300


def joined(pieces):
    """One report of all pieces."""
    return replace(pieces[-1], rows=tuple(row for piece in pieces for row in piece.rows))


def trained(*modes, ranks=2, **options):
    pieces = []
    request = TrainRequest(tuple(Mode(*mode) for mode in modes), **options)
    world = World(ranks)
    task = "exec.training.workloads.task:train_task"
    reference = run_ranks(task, request, world, wires="sockets", keep=pieces.append, timeout_s=LIMIT_S)
    return joined(pieces), reference


def test_each_mode_trains_and_holds_what_it_promises():
    report, reference = trained(
        ("ddp",),
        ("dear", 64 << 10),
        ("horovod", 64 << 10),
        ("horovod-tuned",),
        ("hierarchical",),
        ("ds-sync",),
        ("gossip",),
        ("asp",),
        ("none",),
        steps=40,
        warmup=4,
    )
    rows = {row.mode: row for row in report.rows}
    assert not report.problems()
    assert reference.nbytes == report.parameter_bytes
    for row in report.rows:
        assert row.accuracy > 0.3
        assert row.losses[-5:].mean() < row.losses[:5].mean()
        assert row.evaluated.tolist() == [10, 20, 30, 40]
    # On two ranks a sum has one order.
    for name in ("dear", "horovod", "horovod-tuned", "hierarchical"):
        assert rows[name].ddp_difference == 0
        assert rows[name].losses.tolist() == rows["ddp"].losses.tolist()
    assert all(rows[name].equal for name in ("ddp", "dear", "horovod", "hierarchical"))
    assert "all ranks average in the first 4 iterations" in rows["ds-sync"].note
    assert not rows["gossip"].equal
    assert not rows["none"].equal
    assert rows["asp"].ddp_difference > 0
    assert rows["none"].wire_bytes < 0.1 * report.parameter_bytes
    # An all_reduce of two ranks is once the model, and so are parameters to one neighbour; where nobody waits
    # for all, what belongs to an iteration may be sent in the one before or after.
    for name in ("ddp", "dear", "horovod", "ds-sync", "gossip", "asp"):
        assert 0.9 < rows[name].wire_bytes / report.parameter_bytes < 1.1


class KillsOne(Progress):
    """Kills the last rank when rank 0 has come to some iteration."""

    def __init__(self, rank, step):
        self._rank, self._step = rank, step

    def update(self, done, total, text=""):
        if self._step is not None and done >= self._step:
            self._step = None
            for process in psutil.Process().children(recursive=True):
                # One that has ended tells nothing.
                with contextlib.suppress(psutil.Error):
                    if process.environ().get(RANK) == str(self._rank):
                        process.kill()

    def waiting(self, peer, what):
        pass


def test_adaptive_goes_on_without_a_rank_that_is_killed():
    pieces = []
    request = TrainRequest((Mode("adaptive"),), steps=60, warmup=2, compute_s=5e-3)
    found = run_ranks(
        "exec.training.workloads.task:elastic_task",
        request,
        World(3),
        wires="sockets",
        survive=True,
        keep=pieces.append,
        progress=KillsOne(2, 10),
        timeout_s=LIMIT_S,
    )
    assert found is True
    (row,) = joined(pieces).rows
    assert row.lost == (2,)
    assert len(row.rank_s) == 2
    assert row.equal
    assert len(row.losses) == 60
    assert row.losses[-10:].mean() < row.losses[5:15].mean()


def test_every_model_learns_and_layers_take_the_time_that_is_asked_for():
    from exec.training.workloads.data import dataset, indices
    from exec.training.workloads.models import build, emulate_compute, layers_of, optimizer_of

    for name in ("mlp", "cnn", "transformer", "moe"):
        data, model = dataset(name, 1), build(name, 0, 0, 1)
        optimizer = optimizer_of(name, model.parameters())
        losses = []
        for step in range(20):
            chosen = indices(step, 32, 0, 1, 1)
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(data.inputs[chosen]), data.labels[chosen])
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        assert np.mean(losses[-5:]) < np.mean(losses[:5]), name
    order = []
    model = build("mlp", 3, 8, 1)
    emulate_compute(model, 1e-3)
    for at, layer in enumerate(layers_of(model)):
        layer.weight.register_post_accumulate_grad_hook(lambda weight, at=at: order.append(at))
    model(torch.ones(1, 64)).sum().backward()
    assert order == [2, 1, 0]


def test_ranks_share_each_batch_and_each_pass():
    from exec.training.workloads.data import TRAINING, indices

    steps = TRAINING // (3 * 16)
    seen = [indices(step, 16, rank, 3, 5).tolist() for step in range(steps) for rank in range(3)]
    every = [index for batch in seen for index in batch]
    assert len(every) == len(set(every)) == steps * 48
    assert indices(steps, 16, 0, 3, 5).tolist() != seen[0]
