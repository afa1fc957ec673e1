"""What one rank does in the tests of DS-Sync: `python ds_sync_ranks.py CASE`, as torchrun starts it."""

import copy
import os
import sys
from dataclasses import replace

import torch
import torch.distributed as dist
from racked_networks import SIZE_BYTES, racked
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ccctl.torch
from probes.errors import UsageError
from synth.groups.consensus import average
from synth.groups.planner import plan_groups

DSSync = ccctl.torch.DSSync
FAR = 10**9


def planned(racks, pattern=None, **slow):
    return plan_groups(racked(racks, **slow), SIZE_BYTES, pattern=pattern).groups


def values(module):
    return torch.cat([one.detach().reshape(-1).double() for one in module.parameters()])


def of_all(row):
    """A row of each rank."""
    rows = [torch.empty_like(row) for _ in range(dist.get_world_size())]
    dist.all_gather(rows, row)
    return torch.stack(rows)


def replicas(wrapper):
    wrapper.synchronize()
    return of_all(values(wrapper.module))


def refused(call, words):
    """Every rank is told why."""
    try:
        call()
    except UsageError as error:
        assert words in str(error), error
        return
    raise AssertionError(f"expected a refusal: {words}")


def perceptron(seed=5):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 3))


def wrapped(groups, model=None, lr=0.05, optimizer=torch.optim.SGD, **options):
    model = model or perceptron()
    stepping = optimizer(model.parameters(), lr=lr)
    return DSSync(model, stepping, groups, **options), stepping


def batch(step, rank, size=16):
    """Inputs, and what a fixed model makes of them."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    inputs = torch.randn(size, 6, generator=generator)
    torch.manual_seed(77)
    with torch.no_grad():
        return inputs, nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 3))(inputs)


def iterate(wrapper, optimizer, step, rank=None):
    inputs, targets = batch(step, dist.get_rank() if rank is None else rank)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(wrapper(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.detach()


def start_equal(rank, size):
    """Ranks that begin with other parameters and buffers get rank 0's."""
    torch.manual_seed(rank)
    model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4))
    model[1].running_mean.fill_(rank)
    model[1].num_batches_tracked.fill_(rank)
    expected = copy.deepcopy(model)
    wrapper, _ = wrapped(planned([2, 2]), model)
    assert (replicas(wrapper) == replicas(wrapper)[0]).all()
    assert model[1].running_mean.eq(0).all() and model[1].num_batches_tracked == 0
    if rank == 0:
        assert torch.equal(values(model), values(expected))


def averaging(rank, size):
    """With zero gradients each iteration applies its mixing matrix: the mean stays, Lemma IV.1 holds."""
    for groups in (
        planned([2, 2], "butterfly"),
        planned([3, 1]),
        planned([2, 2]),
        planned([4], slow_ranks=[2]),
    ):
        wrapper, optimizer = wrapped(groups, lr=0.0, bucket_bytes=0)
        with torch.no_grad():
            for one in wrapper.parameters():
                one.add_(torch.randn(one.shape, generator=torch.Generator().manual_seed(rank)))
        before = replicas(wrapper)
        expected, first = before.numpy(), before
        for at in range(3 * groups.period):
            iterate(wrapper, optimizer, at)
            expected = average(expected, groups.iterations[at % groups.period])
            now = replicas(wrapper)
            assert torch.allclose(now, torch.from_numpy(expected), atol=1e-5)
            assert torch.allclose(now.mean(0), first.mean(0), atol=1e-5)
            for group in groups.iterations[at % groups.period]:
                assert (now[list(group)] == now[group[0]]).all(), "a group agrees bit for bit"
            if groups.pattern == "butterfly" and (at + 1) % groups.period == 0:
                assert (now == now[0]).all()
        # Column by column a rank's squared error is at most rho^k of the initial values' squared norm.
        error = ((now - now.mean(0)) ** 2).max(0).values
        assert (error <= max(groups.rho**3, 1e-9) * (first**2).sum(0)).all()
        spread = (first - first.mean(0)).norm()
        assert (now - now.mean(0)).norm() <= (groups.distance**3 + 1e-6) * spread
        assert [record.group for record in wrapper.records] == [
            groups.group_of(rank, at) for at in range(3 * groups.period)
        ]
        size_bytes = 4 * sum(one.numel() for one in wrapper.parameters())
        assert all(record.size_bytes in (0, size_bytes) and record.seconds >= 0 for record in wrapper.records)
        assert {record.size_bytes == 0 for record in wrapper.records if len(record.group) == 1} <= {True}


def refusals(rank, size):
    alone = planned([2, 2], "butterfly")
    apart = replace(alone, iterations=alone.iterations[:1])
    refused(lambda: wrapped(apart), "rho = 1")
    refused(lambda: wrapped(planned([4, 4])), "the 4 ranks of the job, found 8")
    model = perceptron()
    refused(lambda: DSSync(model, torch.optim.LBFGS(model.parameters()), alone), "LBFGS")
    refused(lambda: DSSync(model, torch.optim.SGD(perceptron().parameters(), lr=1), alone), "not the model's")
    refused(lambda: wrapped(alone, perceptron() if rank else nn.Linear(6, 3)), "another model than rank 0")
    wrapper, optimizer = wrapped(alone)
    refused(lambda: wrapper.clip_grad_norm_(1.0), "clipping")

    def clipped():
        wrapper(batch(0, rank)[0]).sum().backward()
        nn.utils.clip_grad_norm_(wrapper.parameters(), 1.0)
        optimizer.step()

    refused(clipped, "clipping")
    wrapper, optimizer = wrapped(alone)
    refused(lambda: optimizer.step(lambda: 0.0), "no closure")
    wrapper(batch(0, rank)[0]).sum().backward()
    refused(lambda: wrapper(batch(0, rank)[0]).sum().backward(), "no_sync")
    refused(lambda: wrapped(lambda job: plan_groups(racked([4, 4]), 1).groups), "found 8")


def warm_up(rank, size):
    """While all ranks average plain SGD does what DDP does; after it the groups take over."""
    theirs = DistributedDataParallel(perceptron())
    their_optimizer = torch.optim.SGD(theirs.parameters(), lr=0.05)
    wrapper, optimizer = wrapped(planned([2, 2], "butterfly"), warmup=4)
    for step in range(4):
        iterate(theirs, their_optimizer, step)
        iterate(wrapper, optimizer, step)
    found = replicas(wrapper)
    assert (found == found[0]).all()
    assert torch.allclose(found[0], values(theirs), atol=1e-6)
    iterate(wrapper, optimizer, 4)
    iterate(theirs, their_optimizer, 4)
    found = replicas(wrapper)
    assert not (found == found[0]).all()
    # The mean of replicas has moved by the mean of gradients.
    assert torch.allclose(found.mean(0), values(theirs), atol=1e-6)
    assert [len(record.group) for record in wrapper.records] == [4, 4, 4, 4, 2]


def converges(rank, size):
    """As low a loss as DDP's, with each optimizer, and a schedule of learning rates."""
    for optimizer, lr in ((torch.optim.SGD, 0.2), (torch.optim.AdamW, 0.01)):
        losses = {}
        for name in ("ddp", "ds-sync"):
            if name == "ddp":
                wrapper = DistributedDataParallel(perceptron())
                stepping = optimizer(wrapper.parameters(), lr=lr)
            else:
                wrapper, stepping = wrapped(planned([2, 2]), lr=lr, optimizer=optimizer)
            schedule = torch.optim.lr_scheduler.StepLR(stepping, 60, 0.3)
            for step in range(150):
                iterate(wrapper, stepping, step)
                schedule.step()
            if name == "ds-sync":
                wrapper.finish()
                assert (replicas(wrapper) == replicas(wrapper)[0]).all()
            inputs, targets = batch(FAR, 0, 512)
            with torch.no_grad():
                losses[name] = float(nn.functional.mse_loss(wrapper(inputs), targets))
        with torch.no_grad():
            first = float(nn.functional.mse_loss(perceptron()(inputs), targets))
        assert losses["ddp"] < first / 5
        assert losses["ds-sync"] < 1.25 * losses["ddp"], losses


CASES = {"four": (start_equal, averaging, refusals, warm_up, converges)}


def main():
    torch.set_num_threads(1)
    dist.init_process_group(os.environ.get("BACKEND", "gloo"))
    for case in CASES.get(sys.argv[1]) or [globals()[sys.argv[1]]]:
        case(dist.get_rank(), dist.get_world_size())
        print(case.__name__, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
