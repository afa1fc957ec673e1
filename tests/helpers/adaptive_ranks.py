"""A rank of adaptive training in tests: `python adaptive_ranks.py CASE`, as torchrun starts it."""

import copy
import os
import re
import signal
import sys
import time
from pathlib import Path

import apart
import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ccctl.torch

SAMPLES, CLASSES, FEATURES = 206, 4, 24


def data():
    """Samples whose classes can be learned."""
    torch.manual_seed(5)
    inputs = torch.randn(SAMPLES, FEATURES)
    return inputs, (inputs @ torch.randn(FEATURES, CLASSES)).argmax(1)


def replica(**options):
    """A model of several buckets, with BatchNorm's buffers."""
    torch.manual_seed(7)
    layers = (
        nn.Linear(FEATURES, 120),
        nn.BatchNorm1d(120),
        nn.ReLU(),
        nn.Linear(120, 100),
        nn.Linear(100, CLASSES),
    )
    return DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=0.02, **options)


def gradients(model):
    return torch.cat([parameter.grad.view(-1) for parameter in model.parameters()])


def parameters(model):
    return torch.cat([parameter.detach().view(-1) for parameter in model.parameters()])


def same_on_all(session, tensor):
    found = session.gather("same", tensor.numpy().tobytes())
    assert len(set(found.values())) == 1


def equal_to_ddp(rank, size):
    """Gradients step by step as DDP's own, with micro-batches, one rank late, and the rebuilt buckets."""
    plain, hooked = replica(), replica()
    hook = ccctl.torch.AdaptiveHook(hooked)
    sgd = [torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9) for model in (plain, hooked)]
    inputs, classes = data()
    loss = nn.functional.cross_entropy
    for step in range(5):
        mine = torch.arange(SAMPLES).roll(-step)[rank * 16 : (rank + 1) * 16]
        for optimizer in sgd:
            optimizer.zero_grad()
        for model in (plain, hooked):
            with model.no_sync():
                loss(model(inputs[mine[:8]]), classes[mine[:8]]).backward()
            if step == 3 and model is hooked and rank == size - 1:
                # Long enough that the others go ahead and this one relays.
                time.sleep(1.0)
            loss(model(inputs[mine[8:]]), classes[mine[8:]]).backward()
        ours, theirs = gradients(hooked), gradients(plain)
        assert torch.equal(ours, theirs) if size == 2 else torch.allclose(ours, theirs, atol=1e-6), step
        for optimizer in sgd:
            optimizer.step()
    same_on_all(hook.session, parameters(hooked))
    if size > 2 and rank == hook.session.coordinator:
        assert any(len(seen.parts) > 1 for seen in hook.session.seen), hook.session.seen
    hook.sync_buffers()
    for ours, theirs in zip(hooked.buffers(), plain.buffers(), strict=True):
        dist.broadcast(theirs, 0)
        # The models differ by rounding where their gradients do.
        assert torch.equal(ours, theirs) if size == 2 else torch.allclose(ours, theirs, atol=1e-5)
    refused(hook.session)
    hook.close()


def refused(session):
    from probes.base.errors import UsageError

    try:
        ccctl.torch.AdaptiveHook(replica(find_unused_parameters=True), session)
    except UsageError as error:
        assert "static_graph" in error.hint
        return
    raise AssertionError("find_unused_parameters was taken")


def experts(rank, size):
    """The all_to_all of a mixture of experts, forward and backward, in three types."""
    from torch.distributed._functional_collectives import all_to_all_single_autograd

    session = ccctl.torch.adaptive_session()
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        torch.manual_seed(rank)
        given = torch.randn(size * 3, 50, dtype=dtype)
        scale = torch.randn(size * 3, 50, dtype=dtype)
        one, other = given.clone().requires_grad_(), given.clone().requires_grad_()
        found = ccctl.torch.all_to_all(one, session)
        expected = all_to_all_single_autograd(other, None, None, dist.group.WORLD)
        assert torch.equal(found, expected)
        (found * scale).sum().backward()
        (expected * scale).sum().backward()
        assert torch.equal(one.grad, other.grad)
    session.close()


def loses(rank, size):
    """One rank is killed in the middle of a step; every sample is used, in batches of one size."""
    victim = int(os.environ["VICTIM"])
    inputs, classes = data()
    model = replica()
    hook = ccctl.torch.AdaptiveHook(model)
    sampler = ccctl.torch.ElasticSampler(SAMPLES, 20, rank, hook.members, seed=3)
    dataset = torch.utils.data.TensorDataset(torch.arange(SAMPLES), inputs, classes)
    loader = torch.utils.data.DataLoader(dataset, batch_sampler=sampler)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    used, sizes, step = [], [], 0
    for epoch in range(2):
        epochs_own = []
        for numbers, batch, wanted in hook.batches(loader, epoch):
            weights = sampler.weights()
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(batch), wanted)
            if step == 6 and rank == victim:
                os.kill(os.getpid(), signal.SIGKILL)
            loss.backward()
            optimizer.step()
            assert weights[rank] in (0, len(numbers))
            epochs_own += numbers[: weights[rank]].tolist()
            sizes.append(sum(weights.values()))
            step += 1
        used.append(epochs_own)
    assert hook.members == tuple(other for other in range(size) if other != victim)
    everybody = hook.session.gather("used", used)
    for epoch in range(2):
        whole = sorted(number for own in everybody.values() for number in own[epoch])
        if epoch:
            assert whole == list(range(SAMPLES))
        else:
            # The samples that the lost rank had used are not among these.
            assert len(set(whole)) == len(whole)
            lost = ccctl.torch.ElasticSampler(SAMPLES, 20, victim, range(size), seed=3)
            before = [number for _, own in zip(range(6), lost, strict=False) for number in own]
            assert sorted(whole + before) == list(range(SAMPLES)), (len(whole), len(before))
    same_on_all(hook.session, parameters(model))
    # All but the last one of each epoch.
    assert sizes.count(20) == len(sizes) - 2, sizes
    hook.sync_buffers()
    same_on_all(hook.session, torch.cat([buffer.double().view(-1) for buffer in model.buffers()]))
    is_their_mean(model, hook, loader)
    blocks = ccctl.torch.all_to_all(torch.full((2 * size, 3), rank + 1.0), hook.session).view(size, -1)
    assert blocks[:, 0].tolist() == [0.0 if other == victim else other + 1.0 for other in range(size)]
    hook.close()


def is_their_mean(model, hook, loader):
    """Gradients are the mean over the global batch, however it is divided among those that are left."""
    model.eval()
    # The last batch is one sample, for two ranks.
    loader.batch_sampler.global_batch = 41
    alone = copy.deepcopy(model.module)
    for _, batch, wanted in hook.batches(loader, 2):
        has_weight = bool(loader.batch_sampler.weights()[hook.rank])
        shares = hook.session.gather("shares", (batch.numpy(), wanted.numpy(), has_weight)).values()
        batches, classes = zip(*(pair for *pair, counts in shares if counts), strict=True)
        whole, its_classes = (torch.from_numpy(np.concatenate(parts)) for parts in (batches, classes))
        for one, given, expected in ((model, batch, wanted), (alone, whole, its_classes)):
            one.zero_grad()
            nn.functional.cross_entropy(one(given), expected).backward()
        assert torch.allclose(gradients(model), gradients(alone), atol=1e-6), len(whole)
    model.train()


def example(rank, size):
    """The loop of the documentation; it begins by making the process group."""
    dist.destroy_process_group()
    os.environ["MASTER_PORT"] = os.environ["SECOND_PORT"]
    text = Path(__file__).parents[2].joinpath("docs/explanation/training/late-ranks.md").read_text()
    (script,) = re.findall(r"```python\n(import torch\n[^`]*AdaptiveHook[^`]*)```", text)
    torch.manual_seed(1)
    names = {}
    exec(script, names)
    assert not len(names["sampler"])
    assert names["epoch"] == 2


CASES = {
    "equal": (equal_to_ddp, experts),
    "example": (equal_to_ddp, example),
    "loses": (loses,),
}


def main():
    torch.set_num_threads(1)
    if os.environ.get("APART"):
        apart.over(os.environ["APART"], os.environ["RANK"])
    dist.init_process_group("gloo")
    for case in CASES[sys.argv[1]]:
        case(dist.get_rank(), dist.get_world_size())
        print(case.__name__, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
