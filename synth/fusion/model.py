"""The model artifact: the layers of a neural network, their times, and their parameter tensors."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.resources import files
from math import isfinite

import numpy as np

from probes.base import Floats, Ints, Longs, UsageError, floats, ints, longs, meant, quoted

__all__ = ["MOST_ENTRIES", "MOST_TENSOR_BYTES", "Model", "shape", "shapes"]

# The most layers and the most tensors of a model. Every method simulates every layer, and tuning does so many
# times.
MOST_ENTRIES = 20_000
# The largest tensor. MOST_ENTRIES tensors of this size together have fewer than 2^63 bytes.
MOST_TENSOR_BYTES = 1 << 48
# The least time of a whole forward or backward pass, and the most time of one layer. The least is shorter
# than any real pass, and large enough to divide by.
_LEAST_S, _MOST_S = 1e-12, 1e6
# The most names that are listed: the first ones show what is wrong.
_MOST_TOLD = 5


@dataclass(frozen=True, eq=False)
class Model:
    """Layers and tensors in the order of the forward pass.

    ``forward_s`` and ``backward_s`` hold the seconds that each layer takes. ``tensor_layer`` holds the number
    of each tensor's layer and never decreases; ``tensor_bytes`` holds the size of each tensor's gradient. A
    tensor that several layers share belongs to the first of them, whose backward pass completes its gradient.
    ``origin`` says where the numbers come from.
    """

    name: str
    layers: tuple[str, ...]
    forward_s: Floats
    backward_s: Floats
    tensors: tuple[str, ...]
    tensor_layer: Ints
    tensor_bytes: Longs
    origin: str = ""

    @property
    def total_bytes(self) -> int:
        return int(self.tensor_bytes.sum())

    @cached_property
    def forward_total_s(self) -> float:
        return float(self.forward_s.sum())

    @cached_property
    def backward_total_s(self) -> float:
        return float(self.backward_s.sum())

    @cached_property
    def ready_s(self) -> Floats:
        """End of each layer's backward pass, in seconds after the whole backward pass began."""
        return floats(np.cumsum(self.backward_s[::-1])[::-1])

    def taking(self, compute_s: float) -> Model:
        """Return the model scaled so that all layers together take ``compute_s``."""
        share = compute_s / (self.forward_total_s + self.backward_total_s)
        return replace(
            self, forward_s=floats(self.forward_s * share), backward_s=floats(self.backward_s * share)
        )

    def problems(self) -> list[str]:
        """Return every inconsistency between the columns, as ``path: what is wrong``."""
        found = [
            f"{name}: expected {count} values, as many as {like}, found {len(getattr(self, name))}"
            for name, count, like in (
                ("forward_s", len(self.layers), "layers"),
                ("backward_s", len(self.layers), "layers"),
                ("tensor_layer", len(self.tensors), "tensors"),
                ("tensor_bytes", len(self.tensors), "tensors"),
            )
            if len(getattr(self, name)) != count
        ]
        found += [
            f"{name}: expected 1 to {MOST_ENTRIES} entries, found {len(getattr(self, name))}"
            for name in ("layers", "tensors")
            if not 1 <= len(getattr(self, name)) <= MOST_ENTRIES
        ]
        return found or [*self._wrong_times(), *self._wrong_tensors()]

    def _wrong_times(self) -> list[str]:
        found = [
            f"{name}[{row}]: expected seconds from 0 to {_MOST_S:g}, found {value:g}"
            for name in ("forward_s", "backward_s")
            for row, value in enumerate(getattr(self, name).tolist())
            if not (isfinite(value) and 0 <= value <= _MOST_S)
        ]
        if not found and min(self.forward_total_s, self.backward_total_s) < _LEAST_S:
            found.append("forward_s: expected layers that take time, forward and backward")
        return found

    def _wrong_tensors(self) -> list[str]:
        layer, size = self.tensor_layer.tolist(), self.tensor_bytes.tolist()
        found = [
            f"tensor_bytes[{row}]: expected 1 to {MOST_TENSOR_BYTES}, found {value}"
            for row, value in enumerate(size)
            if not 1 <= value <= MOST_TENSOR_BYTES
        ]
        for row, value in enumerate(layer):
            if not 0 <= value < len(self.layers):
                found.append(f"tensor_layer[{row}]: there is no layer {value}")
            elif row and value < layer[row - 1]:
                found.append(f"tensor_layer[{row}]: expected at least {layer[row - 1]}, found {value}")
        twice = [name for name, count in Counter(self.tensors).items() if count > 1]
        found += [f"tensors: {quoted(name)} is listed twice" for name in twice[:_MOST_TOLD]]
        return found


def shapes() -> tuple[str, ...]:
    """Return the names of the models that are shipped: those of DeAR's Table I."""
    folder = files("synth.fusion") / "shapes"
    return tuple(sorted(entry.name.removesuffix(".json") for entry in folder.iterdir()))


def shape(name: str) -> Model:
    """Return a shipped model; raises UsageError if there is none of that name."""
    if name not in shapes():
        raise UsageError(
            f"model: expected one of {', '.join(shapes())}, found {quoted(name)}", hint=meant(name, shapes())
        )
    body = json.loads((files("synth.fusion") / "shapes" / f"{name}.json").read_text())["body"]
    return Model(
        name=body["name"],
        layers=tuple(body["layers"]),
        forward_s=floats(body["forward_s"]),
        backward_s=floats(body["backward_s"]),
        tensors=tuple(body["tensors"]),
        tensor_layer=ints(body["tensor_layer"]),
        tensor_bytes=longs(body["tensor_bytes"]),
        origin=body["origin"],
    )
