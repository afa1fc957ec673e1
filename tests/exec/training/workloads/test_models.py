"""The models that `ccctl training compare` trains."""

import pytest

torch = pytest.importorskip("torch")

from exec.training.workloads.data import dataset, indices  # noqa: E402
from exec.training.workloads.models import build, optimizer_of  # noqa: E402

RANKS = 4


@pytest.fixture(autouse=True)
def one_thread():
    """Small models are slower on many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def trained(model, order):
    """Parameters after some iterations whose gradients are summed over ranks in this order."""
    data, own = dataset(model, 0), build(model, 0, 0, 0)
    optimizer = optimizer_of(model, own.parameters())
    for step in range(6):
        gradients = []
        for rank in range(RANKS):
            chosen = indices(step, 16, rank, RANKS, 0)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(own(data.inputs[chosen]), data.labels[chosen]).backward()
            gradients.append([one.grad.clone() for one in own.parameters()])
        for one, *each in zip(own.parameters(), *(gradients[rank] for rank in order), strict=True):
            one.grad = sum(each[1:], each[0]) / RANKS
        optimizer.step()
    return [one.detach() for one in own.parameters()]


@pytest.mark.parametrize("model", ["mlp", "cnn", "transformer", "moe"])
def test_the_order_of_sums_makes_no_difference_but_rounding(model):
    for one, other in zip(trained(model, (0, 1, 2, 3)), trained(model, (3, 1, 0, 2)), strict=True):
        assert torch.allclose(one, other, rtol=0, atol=2e-6)
