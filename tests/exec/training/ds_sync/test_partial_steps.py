"""Steps behind the backward pass, and learning rates with which DS-Sync's steps are DDP's."""

import pytest

pytest.importorskip("torch")

import torch

from exec.training.ds_sync.partial_steps import PartialSteps, matching_rate
from synth.errors import NotApplicableError

RANKS, SIDE = 4, 32


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


def moved(kind, factor, ranks, steps=60, noise=5.0, rate=1e-3):
    """Return how far the mean of ``ranks`` replicas goes along the gradient.

    Each has as much noise as a share of the batch has; the gradient itself has elements of about 1.
    """
    generator = torch.Generator().manual_seed(1)
    gradient = torch.randn(SIDE, SIDE, generator=generator)
    own = [torch.nn.Parameter(torch.ones(SIDE, SIDE)) for _ in range(ranks)]
    options = {} if kind == "Rprop" else {"weight_decay": 0.0}
    optimizers = [getattr(torch.optim, kind)([one], lr=rate, **options) for one in own]
    together = [PartialSteps(optimizer, factor) for optimizer in optimizers]
    for _ in range(steps):
        noises = noise * torch.randn(RANKS, SIDE, SIDE, generator=generator)
        for one, each in zip(own, noises.view(ranks, RANKS // ranks, SIDE, SIDE).mean(1), strict=True):
            one.grad = gradient + each
        for one, step in zip(own, together, strict=True):
            step.step([one])
        with torch.no_grad():
            mean = torch.stack(own).mean(0)
            for one in own:
                one.copy_(mean)
    return float(((1 - own[0].detach()) * gradient).mean())


def optimizer_of(kind):
    if not hasattr(torch.optim, kind):
        pytest.skip(f"this PyTorch has no {kind}")
    return getattr(torch.optim, kind)([torch.nn.Parameter(torch.zeros(2, 2))])


@pytest.mark.parametrize(
    "kind", ["Adam", "AdamW", "NAdam", "RAdam", "Adamax", "RMSprop", "Adagrad", "Adadelta"]
)
def test_the_mean_of_normalized_local_steps_goes_as_far_as_the_step_of_the_whole_batch(kind):
    factor = matching_rate(optimizer_of(kind), RANKS)
    # The first steps of these are linear in the gradient, or short.
    steps = 300 if kind in ("RAdam", "Adadelta") else 80
    whole, ours, unchanged = (
        moved(kind, *how, steps, noise=10.0) for how in ((1.0, 1), (factor, RANKS), (1.0, RANKS))
    )
    assert ours == pytest.approx(whole, rel=0.08)
    assert unchanged < (0.75 if kind == "RAdam" else 0.56) * whole


@pytest.mark.parametrize("kind", ["SGD", "ASGD"])
def test_the_mean_of_linear_local_steps_is_the_step_of_the_whole_batch(kind):
    assert matching_rate(optimizer_of(kind), RANKS) == 1
    assert moved(kind, 1.0, RANKS) == pytest.approx(moved(kind, 1.0, 1), rel=1e-3)


@pytest.mark.parametrize("kind", ["Muon", "Adafactor", "Rprop"])
def test_what_has_no_factor_is_refused_with_the_reason(kind):
    with pytest.raises(NotApplicableError, match=f"{kind}: .* of 4 ranks"):
        matching_rate(optimizer_of(kind), RANKS)
    assert matching_rate(optimizer_of(kind), 1) == 1


def test_muons_factor_depends_on_noise():
    optimizer_of("Muon")
    shortened = [
        moved("Muon", 1.0, 1, steps=20, noise=noise) / moved("Muon", 1.0, RANKS, steps=20, noise=noise)
        for noise in (1.0, 30.0)
    ]
    assert shortened[0] < 1.1 and shortened[1] > 1.6


def test_adafactors_learning_rate_is_bounded_whatever_the_factor():
    optimizer_of("Adafactor")
    whole = moved("Adafactor", 1.0, 1, rate=1.0)
    assert moved("Adafactor", 2.0, RANKS, rate=1.0) < 0.7 * whole


def test_rprop_stands_still_where_noise_turns_signs_round():
    whole, ours = (moved("Rprop", 1.0, ranks) for ranks in (1, RANKS))
    assert ours < 0.2 * whole
