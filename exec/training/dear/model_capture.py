"""The model artifact of a torch model: its layers in forward order, their times, and their tensors."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import Any

import torch

from probes.base import UsageError, floats, ints, longs
from synth.fusion import Model

__all__ = ["capture"]


def capture(
    model: Any,
    batch: Any,
    loss: Callable[[Any], Any] | None = None,
    *,
    steps: int = 5,
    name: str = "",
) -> Model:
    """Measure ``model`` on ``batch`` for `synth.fusion`; ``ccctl.save("model.json", …)`` saves it.

    ``batch`` is the model's input: a tensor, a tuple of arguments, or a dict of keyword arguments. ``loss``
    turns the output into one number; by default it is the output's ``loss``, or else the sum of its tensors.

    A layer is a module that runs and has parameters that require gradients: its own, or those of submodules
    that never run by themselves. The forward time of a layer is from its start to the start of the next. Its
    backward time is from the last gradient of later layers to its own last gradient. Both are medians of
    ``steps`` passes, after an untimed one.

    Gradients, buffers and random number generators keep their state. Capture the model before its optimizer
    is distributed. Raises UsageError if no parameter gets a gradient.
    """
    if steps < 1:
        raise UsageError(f"steps: expected at least 1, found {steps}")
    named = [(key, each) for key, each in model.named_parameters() if each.requires_grad]
    if not named:
        raise UsageError("the model has no parameters that require gradients")
    with _restore_state(model), _Clock(model, [each for _, each in named]) as clock:
        passes = [clock.time(lambda: _loss_of(_output_of(model, batch), loss)) for _ in range(steps + 1)][1:]
        order = clock.layers()
    layers = list(order)
    home = {id(each): at for at, module in enumerate(layers) for each in order[module]}
    rows = sorted((home[id(each)], at) for at, (_, each) in enumerate(named))
    keys = {module: key for key, module in model.named_modules()}
    return Model(
        name=name or type(model).__name__,
        layers=tuple(keys[module] or type(module).__name__ for module in layers),
        forward_s=floats([median(each.forward_s.get(module, 0.0) for each in passes) for module in layers]),
        backward_s=floats(
            [median(each) for each in zip(*(timed.backward_s(order) for timed in passes), strict=True)]
        ),
        tensors=tuple(named[at][0] for _, at in rows),
        tensor_layer=ints([layer for layer, _ in rows]),
        tensor_bytes=longs([named[at][1].nbytes for _, at in rows]),
        origin=f"measured with torch {torch.__version__} on {named[0][1].device.type}, median of {steps}",
    )


class _Pass:
    """The times of one pass: forward seconds of each layer, and the time at which each gradient was ready."""

    def __init__(self) -> None:
        self.forward_s: dict[Any, float] = {}
        self.ready_s: dict[int, float] = {}

    def backward_s(self, order: Mapping[Any, Sequence[Any]]) -> list[float]:
        """Return the seconds of each layer, from the completion of all later layers to its own."""
        found: list[float] = []
        done_s = 0.0
        for parameters in reversed(list(order.values())):
            ready_s = max((self.ready_s.get(id(each), 0.0) for each in parameters), default=0.0)
            found.append(max(0.0, ready_s - done_s))
            done_s = max(done_s, ready_s)
        return found[::-1]


class _Clock:
    """Hooks that time each layer."""

    def __init__(self, model: Any, parameters: Sequence[Any]) -> None:
        self._model, self._parameters = model, parameters
        self._device = parameters[0].device
        self._now = _Pass()
        self._began_s = self._last_s = 0.0
        self._layer: Any = None
        self._ran: dict[Any, None] = {}
        self._of: dict[Any, list[Any]] = {}
        self._handles: list[Any] = []

    def __enter__(self) -> _Clock:
        self._handles = [each.register_forward_pre_hook(self._enter) for each in self._model.modules()]
        self._handles += [each.register_post_accumulate_grad_hook(self._ready) for each in self._parameters]
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()

    def time(self, forward: Callable[[], Any]) -> _Pass:
        self._now, self._layer = _Pass(), None
        for each in self._parameters:
            each.grad = None
        self._last_s = self._seconds()
        loss = forward()
        self._turn(None)
        self._began_s = self._seconds()
        loss.backward()
        if not self._now.ready_s:
            raise UsageError("no parameter of the model got a gradient")
        self._of = self._of or self._parameters_by_layer()
        return self._now

    def layers(self) -> dict[Any, list[Any]]:
        """Return the parameters of each layer, in the order in which layers first ran."""
        return {module: self._of[module] for module in self._ran if module in self._of}

    def _enter(self, module: Any, _: Any) -> None:
        if torch._C._current_graph_task_id() != -1:
            # Recomputed activations are part of the backward pass.
            return
        self._ran.setdefault(module)
        if not self._of or module in self._of:
            self._turn(module)

    def _turn(self, layer: Any) -> None:
        """End the time of the current layer and start the time of ``layer``."""
        now_s = self._seconds()
        before = layer if self._layer is None else self._layer
        if before is not None:
            self._now.forward_s[before] = self._now.forward_s.get(before, 0.0) + now_s - self._last_s
        self._layer, self._last_s = layer, now_s

    def _ready(self, parameter: Any) -> None:
        self._now.ready_s[id(parameter)] = self._seconds() - self._began_s

    def _parameters_by_layer(self) -> dict[Any, list[Any]]:
        """Return each layer's parameters; a shared one belongs to the layer that ran first."""
        at = dict(self._model.named_modules(remove_duplicate=False))
        turn = {module: number for number, module in enumerate(self._ran)}
        found: dict[Any, list[Any]] = {}
        for parameter in self._parameters:
            around = []
            for name, module in at.items():
                if any(each is parameter for each in module._parameters.values()):
                    while name and at[name] not in turn:
                        name = name.rpartition(".")[0]
                    around.append(at[name])
            found.setdefault(min(around, key=lambda module: turn.get(module, 0)), []).append(parameter)
        return found

    def _seconds(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()


@contextmanager
def _restore_state(model: Any) -> Iterator[None]:
    """Restore the model's gradients, buffers and random numbers at the end of the block."""
    gradients = [(each, each.grad) for each in model.parameters()]
    buffers = [(each, each.clone()) for each in model.buffers()]
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng())
        stack.enter_context(torch.enable_grad())
        try:
            yield
        finally:
            for parameter, gradient in gradients:
                parameter.grad = gradient
            with torch.no_grad():
                for buffer, value in buffers:
                    buffer.copy_(value)


def _output_of(model: Any, batch: Any) -> Any:
    if isinstance(batch, Mapping):
        return model(**batch)
    if isinstance(batch, tuple | list):
        return model(*batch)
    return model(batch)


def _loss_of(output: Any, loss: Callable[[Any], Any] | None) -> Any:
    if loss is not None:
        return loss(output)
    given_loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if given_loss is not None:
        return given_loss
    leaves = torch.utils._pytree.tree_leaves(output)
    sums = [each.float().sum() for each in leaves if isinstance(each, torch.Tensor) and each.requires_grad]
    if not sums:
        raise UsageError("the model's output holds nothing that has a gradient", hint="Give a loss.")
    return sum(sums[1:], sums[0])
