"""Bitsets: sets of chunks as rows of 64-bit words, and a random generator for compiled loops."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from synth.kernels.compiled_loop import compiled

__all__ = ["Words", "add", "contains", "dice_of", "lowest", "throw"]

Words: TypeAlias = NDArray[np.uint64]

# _GOLDEN is 2^64 over the golden ratio; it turns small seeds into well mixed states. _SCRAMBLE is the
# multiplier of xorshift64* (Vigna 2016).
_GOLDEN, _SCRAMBLE = np.uint64(0x9E3779B97F4A7C15), np.uint64(0x2545F4914F6CDD1D)
# Each run of 6 bits occurs once in _DE_BRUIJN; _PLACE maps a run to where it begins.
_DE_BRUIJN = np.uint64(0x022FDD63CC95386D)
_PLACE: NDArray[np.int64] = np.zeros(64, np.int64)
for _bit in range(64):
    _PLACE[((1 << _bit) * int(_DE_BRUIJN) & (2**64 - 1)) >> 58] = _bit


@compiled
def add(words: Words, chunk: int) -> None:
    """Put a chunk into the set."""
    words[chunk // 64] |= np.uint64(1) << np.uint64(chunk % 64)


@compiled
def contains(words: Words, chunk: int) -> bool:
    """Return whether the chunk is in the set."""
    return bool(words[chunk // 64] & (np.uint64(1) << np.uint64(chunk % 64)) != 0)


@compiled
def lowest(word: np.uint64) -> int:
    """Return the index of the lowest set bit.

    The 64 products of a power of two and the de Bruijn number differ in their top 6 bits, which index a
    table.
    """
    # The index is cast to int64, because numba computes signed with unsigned integers as floats.
    return int(_PLACE[np.int64(((word & (~word + np.uint64(1))) * _DE_BRUIJN) >> np.uint64(58))])


@compiled
def throw(dice: Words, sides: int) -> int:
    """Return a random number below ``sides`` (at most 32 bits), by xorshift64*."""
    state = dice[0]
    state ^= state >> np.uint64(12)
    state ^= state << np.uint64(25)
    state ^= state >> np.uint64(27)
    dice[0] = state
    return int(np.int64((((state * _SCRAMBLE) >> np.uint64(32)) * np.uint64(sides)) >> np.uint64(32)))


@compiled
def dice_of(seed: int) -> Words:
    """Return the state of the random generator; the same seed gives the same numbers."""
    return np.full(1, np.uint64(seed) * _GOLDEN + _GOLDEN)
