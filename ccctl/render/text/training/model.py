"""A model as text: the times of its layers and the sizes of its tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ccctl import console
from ccctl.render import about, seconds
from probes.base import plural

if TYPE_CHECKING:
    from synth.fusion import Model

__all__ = ["draw", "headline"]

_MOST_LAYERS = 64


def headline(model: Model) -> str:
    """Return the model in one line: tensors, bytes, computation."""
    return (
        f"{model.name}: {plural(len(model.tensors), 'tensor')} of {plural(len(model.layers), 'layer')}, "
        f"{about(model.total_bytes)}; forward {seconds(model.forward_total_s)}, "
        f"backward {seconds(model.backward_total_s)}"
    )


def draw(model: Model) -> None:
    """Print the layers in forward order, at most 64."""
    import numpy as np

    console.data(headline(model))
    if model.origin:
        console.data(model.origin)
    size = np.zeros(len(model.layers), dtype=np.int64)
    np.add.at(size, model.tensor_layer, model.tensor_bytes)
    tensors = np.bincount(model.tensor_layer, minlength=len(model.layers))
    rows = [
        (
            name,
            int(tensors[at]),
            about(int(size[at])),
            seconds(model.forward_s[at]),
            seconds(model.backward_s[at]),
        )
        for at, name in enumerate(model.layers[:_MOST_LAYERS])
    ]
    console.table(("layer", "tensors", "bytes", "forward", "backward"), rows)
    if len(model.layers) > _MOST_LAYERS:
        console.data(f"… and {len(model.layers) - _MOST_LAYERS} more layers")
