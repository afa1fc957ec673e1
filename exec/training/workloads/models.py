"""Four small models, and delays in their layers that emulate the computation of a GPU."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import nn

from exec.training.workloads.data import LENGTH, TOKENS
from exec.training.workloads.examples import CLASSES, FEATURES
from probes.base import floats, ints, longs
from synth.fusion import Model

__all__ = ["build", "emulate_compute", "layers_of", "optimizer_of", "shape_of"]

# The default number of layers and width of each model.
_DEFAULT = {"mlp": (4, 128), "cnn": (3, 24), "transformer": (2, 32), "moe": (2, 64)}
# Experts in a mixture, and attention heads; the heads divide the width, which must be a multiple of 4.
_EXPERTS, _HEADS = 4, 4


def build(model: str, layers: int, width: int, seed: int) -> nn.Module:
    """Return a model with initial parameters from ``seed``; 0 for ``layers`` or ``width`` is the default."""
    own_layers, own_width = _DEFAULT[model]
    torch.manual_seed(seed)
    made: dict[str, Any] = {"mlp": _mlp, "cnn": _cnn, "transformer": _Transformer, "moe": _moe}
    found: nn.Module = made[model](layers or own_layers, width or own_width)
    return found


def optimizer_of(model: str, parameters: Any) -> torch.optim.Optimizer:
    """Return SGD with momentum for mlp and cnn, Adam for transformer and moe."""
    if model in ("transformer", "moe"):
        return torch.optim.Adam(parameters, lr=3e-3)
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def layers_of(model: nn.Module) -> list[nn.Module]:
    """Return the modules with parameters of their own, in the order in which they were made."""
    return [module for module in model.modules() if any(True for _ in module.parameters(recurse=False))]


class _Pause(torch.autograd.Function):  # type: ignore[misc]  # torch is not there for mypy
    """A delay in the forward pass, and twice that in the backward pass."""

    @staticmethod
    def forward(context: Any, value: Any, seconds: float) -> Any:
        context.seconds = seconds
        time.sleep(seconds)
        return value.view_as(value)

    @staticmethod
    def backward(context: Any, gradient: Any) -> Any:
        time.sleep(2 * context.seconds)
        return gradient, None


def emulate_compute(model: nn.Module, seconds: float) -> None:
    """Make each layer's forward pass ``seconds`` longer, and its backward pass twice that, in training.

    The process sleeps meanwhile, so communication can overlap with the delay as it overlaps with a GPU's
    work. A layer's gradients are ready only after its delay.
    """

    def after(module: nn.Module, given: Any, result: Any) -> Any:
        return _Pause.apply(result, seconds) if module.training and torch.is_grad_enabled() else result

    for layer in layers_of(model):
        layer.register_forward_hook(after)


def _mlp(layers: int, width: int) -> nn.Module:
    sizes = [FEATURES, *[width] * (layers - 1), CLASSES]
    parts: list[nn.Module] = []
    for at in range(layers):
        parts += [nn.Linear(sizes[at], sizes[at + 1]), *([nn.ReLU()] if at + 1 < layers else [])]
    return nn.Sequential(*parts)


def _cnn(layers: int, width: int) -> nn.Module:
    parts: list[nn.Module] = []
    channels = 1
    for _ in range(layers):
        # GroupNorm, because it has no running statistics that replicas would have to synchronize.
        parts += [nn.Conv2d(channels, width, 3, padding=1), nn.GroupNorm(4, width), nn.ReLU()]
        channels = width
    return nn.Sequential(*parts, nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(width, CLASSES))


class _Attention(nn.Module):  # type: ignore[misc]
    """Softmax attention of four heads."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inward, self.outward = nn.Linear(width, 3 * width), nn.Linear(width, width)
        # Softmax cancels the bias of keys, so its gradient is rounding noise only. Adam would turn the noise
        # into steps of full length, which depend on the order of sums.
        self.inward.bias.register_hook(lambda gradient: _without_keys(gradient, width))

    def forward(self, value: Any) -> Any:
        """Map (batch, length, width) to the same shape."""
        batch, length, width = value.shape
        parts = self.inward(value).view(batch, length, 3, _HEADS, width // _HEADS)
        query, key, content = parts.permute(2, 0, 3, 1, 4)
        found = nn.functional.scaled_dot_product_attention(query, key, content)
        return self.outward(found.transpose(1, 2).reshape(batch, length, width))


def _without_keys(gradient: Any, width: int) -> Any:
    """Return the gradient of the bias of queries, keys and contents, with zeros for keys."""
    kept = gradient.clone()
    kept[width : 2 * width] = 0
    return kept


class _Block(nn.Module):  # type: ignore[misc]
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.attention = nn.LayerNorm(width), _Attention(width)
        self.second = nn.LayerNorm(width)
        self.widen, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, value: Any) -> Any:
        value = value + self.attention(self.first(value))
        return value + self.narrow(nn.functional.gelu(self.widen(self.second(value))))


class _Transformer(nn.Module):  # type: ignore[misc]
    """Transformer blocks over embedded tokens and positions; the mean output gives the class."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(TOKENS + 1, width), nn.Embedding(LENGTH, width)
        self.blocks = nn.ModuleList(_Block(width) for _ in range(layers))
        self.norm, self.classes = nn.LayerNorm(width), nn.Linear(width, CLASSES)

    def forward(self, tokens: Any) -> Any:
        value = self.tokens(tokens) + self.places(torch.arange(LENGTH, device=tokens.device))
        for block in self.blocks:
            value = block(value)
        return self.classes(self.norm(value).mean(1))


class _Experts(nn.Module):  # type: ignore[misc]
    """A mixture of experts: each input goes to the expert with the highest gate value (Switch Transformer).

    Every rank has all experts. An expert without inputs runs on an empty batch, so its gradient is zero
    rather than missing.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, _EXPERTS)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))
            for _ in range(_EXPERTS)
        )

    def forward(self, value: Any) -> Any:
        share, chosen = self.gate(value).softmax(-1).max(-1)
        found = value.clone()
        for number, expert in enumerate(self.experts):
            inside = (chosen == number).nonzero()[:, 0]
            found = found.index_add(0, inside, share[inside, None] * expert(value[inside]))
        return found


def _moe(layers: int, width: int) -> nn.Module:
    parts: list[nn.Module] = [nn.Linear(FEATURES, width), nn.ReLU()]
    for _ in range(layers):
        parts.append(_Experts(width))
    return nn.Sequential(*parts, nn.Linear(width, CLASSES))


def shape_of(model: torch.nn.Module, layer_s: float, name: str = "workload") -> Model:
    """Return the model artifact of ``model``, for planning of buckets and predictions.

    Each layer's forward pass takes ``layer_s``, and its backward pass twice that.
    """
    names = {module: label for label, module in model.named_modules()}
    layers = layers_of(model)
    tensors, places, sizes = [], [], []
    for at, layer in enumerate(layers):
        for label, parameter in layer.named_parameters(recurse=False):
            tensors.append(f"{names[layer]}.{label}".lstrip("."))
            places.append(at)
            sizes.append(parameter.numel() * parameter.element_size())
    return Model(
        name=name,
        layers=tuple(names[layer] or name for layer in layers),
        forward_s=floats([layer_s] * len(layers)),
        backward_s=floats([2 * layer_s] * len(layers)),
        tensors=tuple(tensors),
        tensor_layer=ints(places),
        tensor_bytes=longs(sizes),
        origin="a workload of ccctl training compare",
    )
