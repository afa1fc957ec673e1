"""A model as a picture: the times of its layers and the sizes of their gradients, in forward order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ccctl.render import seconds
from ccctl.render.svg import COLOURS, Chart, Drawing, Series, charts
from probes.base import plural

if TYPE_CHECKING:
    from probes.base import Floats
    from synth.fusion import Model

__all__ = ["pictures"]

_MOST_POINTS = 48


def pictures(model: Model, width: int) -> list[Drawing]:
    """Return two panels over the layers; with more than 48 layers, a point is the sum of several."""
    from ccctl.render.text.training import model as text

    count = len(model.layers)
    folded = -(-count // _MOST_POINTS)
    size = np.zeros(count)
    np.add.at(size, model.tensor_layer, model.tensor_bytes)

    def points(values: Floats) -> tuple[tuple[float, float], ...]:
        parts = np.add.reduceat(values, np.arange(0, count, folded))
        return tuple((1.0 + folded * at, float(part)) for at, part in enumerate(parts.tolist()))

    of = "layer" if folded == 1 else f"layers, {folded} together"
    times = (
        Series("backward pass", COLOURS[0], points(model.backward_s)),
        Series("forward pass", COLOURS[1], points(model.forward_s)),
    )
    gradients = (Series("gradients", COLOURS[2], points(size / 1e6)),)
    axis = f"{of}, in forward order, of {count}"
    return [
        charts(
            text.headline(model),
            f"What {plural(count, 'layer')} take in the forward and backward pass, and their gradients.",
            [
                Chart(
                    "time of a pass",
                    axis,
                    times,
                    _short,
                    lambda y: seconds(y) if y else "0",
                    0,
                    0,
                    counted=True,
                ),
                Chart("gradients (MB)", axis, gradients, _short, _short, 0, 0, counted=True),
            ],
            width,
        )
    ]


def _short(value: float) -> str:
    return f"{value:g}"
