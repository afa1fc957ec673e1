"""The model artifact of a workload, as planners of fusion take it."""

from __future__ import annotations

import torch

from exec.training.workloads.models import layers_of
from probes.columns import floats, ints, longs
from synth.fusion.model import Model

__all__ = ["shape_of"]


def shape_of(model: torch.nn.Module, layer_s: float, name: str = "workload") -> Model:
    """Layers and tensors of ``model``; each layer's forward pass takes ``layer_s``, its backward pass twice.

    For planners of buckets, and for predictions where the time of layers is emulated.
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
