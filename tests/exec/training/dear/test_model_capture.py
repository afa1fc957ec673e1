"""A model of torch becomes the artifact that `synth.fusion` plans for."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from ccctl.artifacts import codec  # noqa: E402
from exec.training.dear import capture  # noqa: E402
from probes.base.errors import UsageError  # noqa: E402
from synth.fusion.costs import RingCosts  # noqa: E402
from synth.fusion.methods import METHODS, fusion_plan  # noqa: E402


class Backwards(nn.Module):
    """Modules in another order than that of the forward pass, one used twice, one never, one frozen."""

    def __init__(self):
        super().__init__()
        self.last, self.never, self.frozen = nn.Linear(8, 3), nn.Linear(2, 2), nn.Linear(8, 8)
        self.twice, self.norm = nn.Linear(8, 8), nn.BatchNorm1d(8)
        self.attention = nn.MultiheadAttention(8, 2)

    def forward(self, given, offset=0.0):
        hidden = self.norm(self.twice(self.twice(given + offset)))
        hidden = self.attention(hidden, hidden, hidden)[0]
        return {"out": self.last(self.frozen(hidden))}


def test_layers_stand_in_forward_order_with_their_tensors_and_times(tmp_path):
    torch.set_num_threads(1)
    model = Backwards()
    model.frozen.requires_grad_(False)
    model.last.weight.grad = kept = torch.ones(3, 8)
    before = {name: each.clone() for name, each in model.state_dict().items()}
    batch = {"given": torch.randn(6, 8), "offset": 1.0}
    state = torch.get_rng_state()
    found = capture(model, batch, steps=2, name="small")
    assert found.problems() == []
    # A module that never runs belongs to its parent: the model itself, which runs first.
    assert found.layers == ("Backwards", "twice", "norm", "attention", "last")
    homes = [found.layers[at] for at in found.tensor_layer]
    assert dict(zip(found.tensors, homes, strict=True)) == {
        "never.weight": "Backwards",
        "never.bias": "Backwards",
        "twice.weight": "twice",
        "twice.bias": "twice",
        "norm.weight": "norm",
        "norm.bias": "norm",
        "attention.in_proj_weight": "attention",
        "attention.in_proj_bias": "attention",
        "attention.out_proj.weight": "attention",
        "attention.out_proj.bias": "attention",
        "last.weight": "last",
        "last.bias": "last",
    }
    assert found.tensor_bytes[found.tensors.index("last.weight")] == 4 * 24
    assert (found.forward_s[1:] > 0).all()
    assert found.backward_s[-1] > 0
    # The model is as it was.
    assert model.last.weight.grad is kept
    assert model.twice.weight.grad is None
    assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert not any(module._forward_pre_hooks for module in model.modules())
    path = tmp_path / "model.json"
    codec.save(path, found)
    read = codec.load(path, "model")
    for method in METHODS:
        assert fusion_plan(read, RingCosts(4, 1e-5, 1e-9), method).problems() == []


def test_the_loss_is_that_of_the_model_or_of_the_caller():
    model = nn.Linear(4, 2)
    batch = (torch.ones(3, 4),)
    calls = []

    def loss(output):
        calls.append(output.shape)
        return output.square().mean()

    assert capture(model, batch, loss, steps=1).total_bytes == 4 * 10
    assert calls == [(3, 2)] * 2
    with pytest.raises(UsageError, match="nothing that has a gradient"):
        capture(Silent(), batch)
    with pytest.raises(UsageError, match="no parameters"):
        capture(nn.ReLU(), batch)


class Silent(nn.Linear):
    """A model without any output to derive."""

    def __init__(self):
        super().__init__(4, 2)

    def forward(self, given):
        return super().forward(given).detach()
