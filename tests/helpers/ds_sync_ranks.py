"""A rank in the tests of DS-Sync: `python ds_sync_ranks.py CASE`, as torchrun starts it."""

import copy
import os
import sys
import tempfile
import unittest.mock
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import dear_ranks as scripts
import torch
import torch.distributed as dist
from racked_networks import SIZE_BYTES, racked
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import ccctl.torch
from exec.training.backend.planned_collectives import PlannedCollectives
from probes.base.errors import CcctlError, UsageError
from synth.groups.consensus_rate import average
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
    refused_with(UsageError, call, words)


def refused_with(kind, call, words):
    """Every rank is told why."""
    try:
        call()
    except kind as error:
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
    refused(lambda: wrapped(alone, perceptron() if rank else nn.Linear(6, 3)), "differs from rank 0")
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


def adjusting(rank, size):
    """Groups change on all ranks before the same iteration, and only when what is slow has."""
    calm, uneven = racked([4]), racked([4], slow_ranks=[2])
    now = [calm]
    groups = planned([4], "butterfly")
    wrapper, optimizer = wrapped(groups, adjust_every=4, network_now=lambda: now[0])
    for step in range(20):
        iterate(wrapper, optimizer, step)
        now[0] = uneven if 5 <= step < 13 else calm
    assert [at for at, _ in wrapper.adjustments] == [8, 16]
    assert wrapper.adjustments[0][1].slow_ranks == (2,)
    assert wrapper.groups.iterations == groups.iterations
    wrapper.synchronize()
    used = [wrapper.adjustments[0][1] if 8 <= at < 16 else groups for at in range(20)]
    found = [record.group for record in wrapper.records]
    assert found == [each.group_of(rank, at) for at, each in enumerate(used)]
    assert len([one for one in found[8:16] if 2 in one and len(one) > 2]) == 0
    # All ranks decide the same by timed links, whatever their times are.
    wrapper, optimizer = wrapped(None, adjust_every=3)
    for step in range(7):
        iterate(wrapper, optimizer, step)
    told = [None] * size
    dist.all_gather_object(told, (wrapper.groups.iterations, [at for at, _ in wrapper.adjustments]))
    assert all(one == told[0] for one in told)
    assert wrapper.groups.network.name == "links measured in training" or not wrapper.adjustments


class Tangled(nn.Module):
    """Shared, frozen, unused and checkpointed parameters, attention, and two types."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(12, 8, sparse=False)
        self.attend = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
        self.unused = nn.Linear(8, 8)
        self.block = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        self.wide = nn.Linear(8, 8).double()
        self.scale = nn.Parameter(torch.ones(8))
        self.head = nn.Linear(8, 12, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        found = self.frozen(self.attend(self.embed(tokens))) * self.scale
        found = checkpoint(self.block, found, use_reentrant=False)
        found = self.wide(found.double()).float()
        # The head's module is not called.
        return nn.functional.linear(found, self.head.weight)


def tangled():
    torch.manual_seed(2)
    return Tangled()


def tokens(step, rank, part=0):
    return torch.randint(12, (4, 5), generator=torch.Generator().manual_seed(100 * step + 10 * part + rank))


def tangled_loss(model, step, rank, part=0):
    given = tokens(step, rank, part)
    return nn.functional.cross_entropy(model(given).flatten(0, 1), given.flatten().roll(1)) / 2


def like_data_parallel(rank, size):
    """Two ranks that average always do what DDP does with plain SGD, whatever the model is like."""
    for bucket_bytes in (0, 700, 1 << 20):
        theirs = DistributedDataParallel(tangled(), find_unused_parameters=True)
        wrapper, optimizer = wrapped(planned([2]), tangled(), lr=0.3, bucket_bytes=bucket_bytes)
        pairs = [(theirs, torch.optim.SGD(theirs.parameters(), lr=0.3)), (wrapper, optimizer)]
        schedules = [torch.optim.lr_scheduler.ExponentialLR(each, 0.8) for _, each in pairs]
        for step in range(5):
            for (model, stepping), schedule in zip(pairs, schedules, strict=True):
                stepping.zero_grad()
                with model.no_sync():
                    tangled_loss(model, step, rank, 1).backward()
                tangled_loss(model, step, rank).backward()
                stepping.step()
                schedule.step()
        # Without waiting: a checkpoint waits by itself.
        state = wrapper.module.state_dict()
        for name, value in theirs.module.state_dict().items():
            assert torch.allclose(state[name], value, atol=1e-5), name
        found = replicas(wrapper)
        assert (found == found[0]).all()
        for model in (wrapper, theirs):
            model.eval()
        with torch.no_grad():
            given = tokens(99, 0)
            assert torch.allclose(wrapper(given), theirs(given), atol=1e-5)


def in_script(way, rank, compiled=False):
    """A run of `dear_ranks`, whose idioms scripts use."""
    torch.manual_seed(rank)
    module = scripts.odd()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    if way == "ddp":
        model = DistributedDataParallel(module)
    else:
        model = DSSync(module, optimizer, planned([2]), bucket_bytes=2000)
    called = torch.compile(model, backend="eager") if compiled else model
    torch.manual_seed(100 + rank)

    def backward():
        called(torch.randn(5, 37)).square().mean().backward()

    return SimpleNamespace(module=module, optimizer=optimizer, model=model, backward=backward)


def idioms(rank, size):
    """Calls after `step` have the effect that they have with DDP; calls before it are refused."""
    for after in [each for each in scripts.AFTER_STEP if each is not scripts.log_gradients]:
        runs = [in_script(way, rank) for way in ("ddp", "ds-sync")]
        for run in runs:
            torch.manual_seed(100 + rank)
            run.seen = []
            for _ in range(5):
                run.optimizer.zero_grad()
                run.backward()
                run.optimizer.step()
                after(run)
        theirs, ours = (torch.cat([values(run.module), torch.tensor(run.seen).double()]) for run in runs)
        assert torch.allclose(theirs, ours, atol=1e-5), (after.__name__, (theirs - ours).abs().max())
    plain = in_script("ds-sync", rank)
    for _ in range(2):
        plain.optimizer.zero_grad()
        plain.backward()
        plain.optimizer.step()
    assert all(bucket.under_way for bucket in plain.model._buckets), "nothing is left to overlap"
    harmless = (scripts.nothing, scripts.log_gradients, scripts.log_on_one_rank)
    for before in [*scripts.BEFORE_STEP, scripts.look_forward, scripts.move_average]:
        run = in_script("ds-sync", rank)

        def use(run=run, before=before):
            run.optimizer.zero_grad()
            run.backward()
            before(run)
            run.optimizer.step()

        if before in harmless:
            use()
        else:
            refused(use, "DS-Sync steps each layer during the backward pass")
    for scale in (8.0, 2.0**127):
        run, scaler = in_script("ds-sync", rank), torch.amp.GradScaler("cpu", init_scale=scale)

        def scaled(run=run, scaler=scaler):
            for _ in range(2):
                scaler.scale(run.model(torch.randn(5, 37)).square().sum()).backward()
                scaler.step(run.optimizer)
                scaler.update()

        refused(scaled, "DS-Sync steps each layer during the backward pass")
    plain, compiled = in_script("ds-sync", rank), in_script("ds-sync", rank, compiled=True)
    for run in (plain, compiled):
        torch.manual_seed(100 + rank)
        for _ in range(4):
            run.optimizer.zero_grad()
            run.backward()
            run.optimizer.step()
            scripts.clamp(run)
    assert torch.equal(values(plain.module), values(compiled.module))


def evaluation(rank, size):
    """The first thing after a step may be an evaluation, also one that does not call all modules."""
    wrapper, optimizer = wrapped(planned([2]), tangled(), lr=0.3, bucket_bytes=0)
    for step in range(3):
        optimizer.zero_grad()
        tangled_loss(wrapper, step, rank).backward()
        optimizer.step()
        wrapper.module.eval()
        with torch.no_grad():
            found = of_all(wrapper(tokens(9, 0)))
        assert torch.equal(found[0], found[1])
        wrapper.train()


def statistics(rank, size):
    """Running statistics are averaged with their layer; counters and constants stay the rank's own."""
    torch.manual_seed(4)
    model = nn.Sequential(
        nn.Linear(6, 5), nn.BatchNorm1d(5, affine=False), nn.Linear(5, 3), nn.BatchNorm1d(3)
    )
    model.register_buffer("constant", torch.tensor([1 / 3, float("inf")]))
    wrapper, optimizer = wrapped(planned([2]), model, lr=0.0, bucket_bytes=0)
    model[1].running_mean.fill_(rank)
    iterate(wrapper, optimizer, 0)
    wrapper.synchronize()
    for step in range(1, 4):
        before = copy.deepcopy(model)
        before(batch(step, rank)[0])
        iterate(wrapper, optimizer, step)
        wrapper.synchronize()
        for own, alone in zip(model.buffers(), before.buffers(), strict=True):
            if own is model.constant:
                assert own.tolist() == torch.tensor([1 / 3, float("inf")]).tolist()
            elif own.is_floating_point():
                assert torch.allclose(own, of_all(alone).mean(0), atol=1e-6)
                assert (of_all(own) == of_all(own)[0]).all()
            else:
                assert own == step + 1
    model[1].num_batches_tracked += rank
    wrapper.finish()
    assert model[1].num_batches_tracked == 4


def ensemble(rank, size):
    """Each rank's moving average; their mean in the end, weighted, or for a while."""
    wrapper, optimizer = wrapped(planned([2]), swa_factor=0.75, swa_from=2, bucket_bytes=0)
    groups = wrapper.groups
    assert groups is not None
    expected = None
    for step in range(6):
        iterate(wrapper, optimizer, step)
        now = replicas(wrapper)[rank]
        if step >= 2:
            expected = now if expected is None else 0.75 * expected + 0.25 * now
    assert torch.allclose(
        torch.cat([one.reshape(-1).double() for one in averages(wrapper)]), expected, atol=1e-6
    )
    before = values(wrapper.module)
    with wrapper.consensus():
        assert torch.allclose(values(wrapper.module), of_all(expected).mean(0), atol=1e-6)
    assert torch.equal(values(wrapper.module), before)
    wrapper.finish()
    assert torch.allclose(values(wrapper.module), of_all(expected).mean(0), atol=1e-6)
    wrapper, optimizer = wrapped(planned([2]))
    with torch.no_grad():
        for one in wrapper.parameters():
            one.fill_(8.0 * rank)
    wrapper.finish(samples=[1, 3][rank])
    assert (values(wrapper.module) == 6.0).all()
    refused(lambda: wrapper.finish(samples=None if rank else 3), "samples")


def averages(wrapper):
    found = wrapper.get_extra_state()["averages"]
    return [found[name] for name, _ in wrapper.module.named_parameters()]


def resumed(rank, size):
    """A run that goes on from checkpoints of its ranks ends as one that was not interrupted."""
    options = dict(swa_factor=0.9, bucket_bytes=0, optimizer=torch.optim.AdamW, lr=0.01)
    wrapper, optimizer = wrapped(planned([2]), **options)
    saved = None
    for step in range(8):
        if step == 4:
            saved = copy.deepcopy((wrapper.state_dict(), optimizer.state_dict()))
        iterate(wrapper, optimizer, step)
    whole, whole_averages = replicas(wrapper), averages(wrapper)
    wrapper, optimizer = wrapped(planned([2]), perceptron(1), **options)
    iterate(wrapper, optimizer, 0)
    wrapper.load_state_dict(saved[0])
    optimizer.load_state_dict(saved[1])
    assert wrapper.iteration == 4
    for step in range(4, 8):
        iterate(wrapper, optimizer, step)
    assert torch.equal(replicas(wrapper), whole)
    assert all(map(torch.equal, averages(wrapper), whole_averages))


def from_a_file(rank, size):
    """Rank 0 reads the groups; what is wrong with the file, all ranks are told."""
    from ccctl.artifacts import codec

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "groups.json"
        if rank == 0:
            codec.write(str(path), "groups", planned([2]), {})
        wrapper, _ = wrapped(path)
        assert wrapper.groups.iterations == planned([2]).iterations
        refused_with(CcctlError, lambda: wrapped(str(path.with_name("none.json"))), "none.json")


def backends(rank, size):
    """Pairs average to the same bits over gloo and over ccctl, preferred or tried in turn with gloo."""
    served = []
    serve = PlannedCollectives.run
    PlannedCollectives.run = lambda *given: (served.append(given[0]), serve(*given))[1]
    found = {}
    for name, prefer in (("gloo", "gloo"), ("ccctl", "ccctl"), ("ccctl", "measured")):
        os.environ["CCCTL_PREFER"] = prefer
        torch.manual_seed(5)
        # Two layers of more than goes to gloo at once, so that two messages are under way.
        model = nn.Sequential(nn.Linear(6, 3001), nn.Tanh(), nn.Linear(3001, 7), nn.Tanh(), nn.Linear(7, 3))
        with unittest.mock.patch.object(dist, "new_group", partial(dist.new_group, backend=name)):
            wrapper, optimizer = wrapped(planned([2, 2], "butterfly"), model, bucket_bytes=1 << 16)
        served.clear()
        for step in range(8):
            iterate(wrapper, optimizer, step)
        found[prefer] = replicas(wrapper)
        # Measured, gloo carries out all that comes before plans are ready.
        assert prefer == "measured" or bool(served) == (prefer == "ccctl")
    for prefer in ("ccctl", "measured"):
        assert torch.equal(found[prefer], found["gloo"])


def documented(rank, size):
    """The script of docs/explanation/training/ds-sync.md, in this process group."""
    page = (Path(__file__).parents[2] / "docs/explanation/training/ds-sync.md").read_text()
    lines = page.partition("```python\n")[2].partition("```")[0].splitlines()
    there = {}
    exec("\n".join(line for line in lines if not line.startswith("dist.")), there)
    assert (replicas(there["replica"]) == replicas(there["replica"])[0]).all()
    inputs = torch.randn(64, 8)
    assert (there["model"](inputs) - inputs.sum(1, keepdim=True)).square().mean() < 1


CASES = {
    "four": (start_equal, averaging, refusals, warm_up, adjusting, converges),
    "backends": (backends,),
    "two": (like_data_parallel, idioms, evaluation, statistics, from_a_file, documented, resumed),
}


def main():
    torch.set_num_threads(1)
    where = {"init_method": "ccctl://"} if "RANK" not in os.environ else {}
    dist.init_process_group(os.environ.get("BACKEND", "gloo"), **where)
    for case in CASES.get(sys.argv[1]) or [globals()[name] for name in sys.argv[1].split(",")]:
        case(dist.get_rank(), dist.get_world_size())
        print(case.__name__, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
