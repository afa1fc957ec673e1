"""Classification data, generated from a seed or from given examples; it is the same on every rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from exec.training.workloads.examples import CLASSES, FEATURES, HELD_OUT_OF
from probes.base import Floats

__all__ = ["IMAGE", "LENGTH", "TOKENS", "TRAINING", "Dataset", "dataset", "indices"]

# The side of an image in pixels, the length of a sequence, and the number of tokens, two for each class.
IMAGE, LENGTH, TOKENS = 12, 8, 20
# The numbers of generated examples for training and for evaluation.
TRAINING, _HELD_OUT = 8192, 1024
# The clusters of points of each class.
_CENTRES = 4
# The mark before the token that gives the class, numbered after all tokens.
_MARK = TOKENS


@dataclass(frozen=True, eq=False)
class Dataset:
    """Inputs and labels for training, and held-out ones."""

    inputs: Any
    labels: Any
    held_inputs: Any
    held_labels: Any

    def to(self, device: torch.device) -> Dataset:
        return Dataset(
            *(part.to(device) for part in (self.inputs, self.labels, self.held_inputs, self.held_labels))
        )


def dataset(model: str, seed: int, examples: Floats | None = None) -> Dataset:
    """Return the data for ``model``: the ``examples`` if there are any, else generated ones.

    For mlp and moe: points around four centres of each class. For cnn: noisy images with the pattern of their
    class at a random place. For transformer: sequences in which the token after a mark gives the class.
    """
    if examples is not None:
        return _given(examples, seed)
    chance = torch.Generator().manual_seed(seed)
    count = TRAINING + _HELD_OUT
    labels = torch.randint(CLASSES, (count,), generator=chance)
    make = {"cnn": _images, "transformer": _sequences}.get(model, _points)
    inputs = make(labels, chance)
    return Dataset(inputs[:TRAINING], labels[:TRAINING], inputs[TRAINING:], labels[TRAINING:])


def indices(step: int, batch: int, rank: int, ranks: int, seed: int, examples: int = TRAINING) -> Any:
    """Return the examples of ``rank`` in iteration ``step``; each epoch has a permutation of its own."""
    together = batch * ranks
    epoch, at = divmod(step, max(1, examples // together))
    order = np.random.default_rng([seed, epoch]).permutation(examples)
    return torch.from_numpy(order[at * together : (at + 1) * together][rank::ranks])


def _given(examples: Floats, seed: int) -> Dataset:
    """Split the examples at random; scale each feature to mean 0 and deviation 1 over those for training."""
    rows = examples[np.random.default_rng(seed).permutation(len(examples))]
    held_out = len(rows) // HELD_OUT_OF
    learned = rows[held_out:, :-1]
    # A feature that never changes stays 0.
    scale = np.where(learned.std(axis=0) > 0, learned.std(axis=0), 1.0)
    inputs = torch.from_numpy(((rows[:, :-1] - learned.mean(axis=0)) / scale).astype(np.float32))
    labels = torch.from_numpy(rows[:, -1].astype(np.int64))
    return Dataset(inputs[held_out:], labels[held_out:], inputs[:held_out], labels[:held_out])


def _points(labels: Any, chance: Any) -> Any:
    centres = torch.randn(CLASSES, _CENTRES, FEATURES, generator=chance)
    which = torch.randint(_CENTRES, labels.shape, generator=chance)
    noise = torch.randn(len(labels), FEATURES, generator=chance)
    return centres[labels, which] + 1.2 * noise


def _images(labels: Any, chance: Any) -> Any:
    side = 5
    patterns = torch.randn(CLASSES, side, side, generator=chance)
    images = 0.7 * torch.randn(len(labels), 1, IMAGE, IMAGE, generator=chance)
    places = torch.randint(IMAGE - side + 1, (len(labels), 2), generator=chance)
    rows = torch.arange(side)
    down = places[:, 0, None, None] + rows[None, :, None]
    across = places[:, 1, None, None] + rows[None, None, :]
    images[torch.arange(len(labels))[:, None, None], 0, down, across] += patterns[labels]
    return images


def _sequences(labels: Any, chance: Any) -> Any:
    """Return sequences in which the token after the mark is the class, or the class plus CLASSES."""
    tokens = torch.randint(TOKENS, (len(labels), LENGTH), generator=chance)
    place = torch.randint(LENGTH - 1, (len(labels),), generator=chance)
    rows = torch.arange(len(labels))
    tokens[rows, place] = _MARK
    tokens[rows, place + 1] = labels + CLASSES * torch.randint(2, (len(labels),), generator=chance)
    return tokens
