"""Steps behind the backward pass, and learning rates with which DS-Sync's steps are DDP's."""

import pytest

pytest.importorskip("torch")

import torch

from exec.training.ds_sync.partial_steps import PartialSteps, matching_rate

RANKS = 4


def parameters(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.nn.Parameter(torch.randn(12, generator=generator)) for _ in range(3)]


def with_gradients(own, step):
    generator = torch.Generator().manual_seed(100 + step)
    for one in own:
        one.grad = torch.randn(one.shape, generator=generator)


@pytest.mark.parametrize(("kind", "decay"), [("AdamW", 0.5), ("NAdam", 0.0), ("RMSprop", 0.0)])
def test_a_rate_factor_multiplies_steps_and_leaves_decoupled_decay(kind, decay):
    make = getattr(torch.optim, kind)
    ours, theirs = parameters(), parameters()
    optimizer = make(ours, lr=0.01, weight_decay=2 * decay)
    reference = make(theirs, lr=0.02, weight_decay=decay)
    steps = PartialSteps(optimizer, 2.0)
    for step in range(5):
        for own in (ours, theirs):
            with_gradients(own, step)
        steps.step(ours[:2])
        # The last one is left to the optimizer's own step.
        steps.hide(ours[:2])
        optimizer.step()
        steps.restore()
        assert optimizer.param_groups[0]["lr"] == 0.01
        assert optimizer.param_groups[0]["weight_decay"] == 2 * decay
        reference.step()
    for one, other in zip(ours, theirs, strict=True):
        assert torch.allclose(one, other, rtol=0, atol=1e-6)


def moved(make, factor, ranks):
    """How far the mean of ``ranks`` replicas goes; each has as much noise as a share of the batch has."""
    generator = torch.Generator().manual_seed(1)
    own = [torch.nn.Parameter(torch.zeros(1000)) for _ in range(ranks)]
    steps = [PartialSteps(make([one], lr=1e-3), factor) for one in own]
    for _ in range(60):
        noise = 5 * torch.randn(RANKS, 1000, generator=generator)
        for one, each in zip(own, noise.view(ranks, RANKS // ranks, 1000).mean(1), strict=True):
            one.grad = 1 + each
        for one, step in zip(own, steps, strict=True):
            step.step([one])
        with torch.no_grad():
            mean = torch.stack(own).mean(0)
            for one in own:
                one.copy_(mean)
    return -float(own[0].detach().mean())


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "Adamax", "RMSprop", "Adagrad"])
def test_the_mean_of_local_steps_goes_as_far_as_the_step_of_the_whole_batch(kind):
    make = getattr(torch.optim, kind)
    together = moved(make, 1.0, 1)
    factor = matching_rate(make([torch.nn.Parameter(torch.zeros(1))], lr=1e-3), RANKS)
    assert moved(make, factor, RANKS) == pytest.approx(together, rel=0.1)
    if kind != "SGD":
        assert moved(make, 1.0, RANKS) < 0.65 * together
