"""A rank's send and receive buffer in either placement, filled so that the result is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from exec.program import expected_output
from exec.program.dtypes import Array
from exec.program.layout import Layout
from synth.program import INPUT, OUTPUT

__all__ = ["Buffers"]


class Buffers:
    """``send`` and ``recv`` of one rank; in place both lie in ``whole``.

    ``make(elements, dtype)`` gives the memory: private by default, or a window that others can read.
    """

    def __init__(
        self,
        layout: Layout,
        rank: int,
        dtype: np.dtype[Any],
        *,
        in_place: bool,
        make: Callable[[int, np.dtype[Any]], Array] = np.zeros,
    ) -> None:
        self.layout, self.rank, self.dtype, self.in_place = layout, rank, dtype, in_place
        if in_place:
            elements, where_in, where_out = layout.in_place(rank)
            self.whole = make(elements, dtype)
            self.send, self.recv = self.whole[where_in], self.whole[where_out]
        else:
            self.send = make(layout.elements(rank, INPUT), dtype)
            self.recv = make(layout.elements(rank, OUTPUT), dtype)
            self.whole = self.recv

    def fill(self, redop: str) -> None:
        """Set every output element to its exact result with all bits inverted, then write the input.

        An element that is never written therefore always counts as wrong, unless it lies in the input.
        """
        self.whole.view(np.uint8)[:] = 0xFF
        self.recv.view(np.uint8)[:] = ~self._expected(redop).view(np.uint8)
        self.send[:] = self._given(redop)

    def wrong(self, result: Array, redop: str) -> int:
        """Return how many elements of ``result`` differ from the exact output.

        Out of place, elements of the input that have changed count as well.
        """
        wrong = int(np.count_nonzero(result != self._expected(redop)))
        if not self.in_place:
            wrong += int(np.count_nonzero(self.send != self._given(redop)))
        return wrong

    def _given(self, redop: str) -> Array:
        return expected_output.given(self.layout, self.rank, self.dtype, redop)

    def _expected(self, redop: str) -> Array:
        return expected_output.expected(self.layout, self.rank, self.dtype, redop)
