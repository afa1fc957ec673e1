"""Watched tensors tell before each use, and are themselves again during it."""

import copy
import pickle

import pytest

pytest.importorskip("torch")

import torch

from exec.training.watching import Watch, shared_memory
from probes.base.errors import UsageError


def watched(keep=False):
    told = []
    watch = Watch(lambda tensor, gradient: (told.append("gradient" if gradient else "value"), keep)[1])
    parameter = torch.nn.Parameter(torch.ones(2, 3))
    watch.arm([parameter])
    return watch, parameter, told


USES = {
    "operator": lambda p: p + 1,
    "in place": lambda p: p.detach().clamp_(0, 1),
    "data": lambda p: p.data,
    "replaced": lambda p: setattr(p, "data", torch.zeros(2, 3)),
    "function": lambda p: torch.nn.functional.linear(torch.ones(3), p),
    "list": lambda p: torch._foreach_norm([torch.ones(1), p]),
    "keyword": lambda p: torch.nn.functional.linear(input=torch.ones(3), weight=p),
    "numpy": lambda p: p.detach().numpy(),
    "repr": repr,
    "item": lambda p: p[0, 0].item(),
    "vector": lambda p: torch.nn.utils.parameters_to_vector([p]),
    "pickle": lambda p: pickle.loads(pickle.dumps(p)),
    "deepcopy": copy.deepcopy,
    "save": lambda p: torch.save(p, __import__("io").BytesIO()),
    "pointer": lambda p: p.data_ptr(),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_each_use_of_values_is_told_once_and_before(use):
    _, parameter, told = watched()
    found = use(parameter)
    assert told[:1] == ["value"] and set(told) == {"value"} and type(parameter) is torch.nn.Parameter
    assert "_Watched" not in str(type(found).__mro__)


@pytest.mark.parametrize(
    "use",
    [lambda p: p.grad, lambda p: setattr(p, "grad", torch.zeros(2, 3)), lambda p: delattr(p, "grad")],
    ids=["read", "written", "deleted"],
)
def test_each_use_of_a_gradient_is_told_as_such(use):
    _, parameter, told = watched(keep=True)
    use(parameter)
    use(parameter)
    assert told == ["gradient"] * 2 and type(parameter) is not torch.nn.Parameter


def test_what_has_nothing_to_do_with_values_is_not_told():
    _, parameter, told = watched()
    parameter.requires_grad_(False)
    parameter.requires_grad = True
    assert (parameter.shape, parameter.numel(), parameter.dtype) == ((2, 3), 6, torch.float32)
    assert isinstance(parameter, torch.nn.Parameter) and parameter in {parameter: 1} and not told


def test_gradients_flow_through_watched_parameters():
    _, parameter, _ = watched(keep=True)
    (parameter * 2).sum().backward()
    assert torch.equal(parameter.grad, torch.full((2, 3), 2.0))


def test_a_refusal_leaves_the_tensor_watched():
    def refuse(*_):
        raise UsageError("not now")

    watch, parameter = Watch(refuse), torch.nn.Parameter(torch.ones(2))
    watch.arm([parameter])
    for _ in range(2):
        with pytest.raises(UsageError, match="not now"):
            parameter.add(1)
    watch.disarm([parameter])
    assert parameter.add(1)[0] == 2


def test_a_tensor_is_watched_for_one_alone():
    watch, parameter, _ = watched()
    with pytest.raises(UsageError, match="two optimizers"):
        Watch(lambda *_: False).arm([parameter])
    watch.arm([parameter])


def test_only_plain_tensors_are_watched():
    class Own(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return super().__torch_function__(func, types, args, kwargs or {})

    watch, parameter, _ = watched()
    watch.check([parameter, torch.ones(1)])
    with pytest.raises(UsageError, match="plain tensors, found one of type Own"):
        watch.check([torch.ones(1).as_subclass(Own)])


def test_memory_that_other_tensors_refer_to_is_found():
    alone, shared, one, other = (torch.nn.Parameter(torch.ones(3)) for _ in range(4))
    other.data = one.data
    made = shared.data
    for alias in (lambda: shared.data, lambda: shared.detach()[1:], lambda: shared.detach().numpy()):
        made = alias()
        assert [each is shared for each in shared_memory([alone, shared, one, other])] == [True]
    del made
    assert shared_memory([alone, shared, one, other]) == []
    assert len(shared_memory([alone, one])) == 1
