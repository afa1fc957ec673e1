"""The chunk language: algorithms written as what happens to chunks (GC3 Sec. 3).

::

    from synth.lang import chunk, program

    @program(collective="all_reduce", ranks=lambda ranks: ranks, chunks=lambda ranks: ranks, in_place=True)
    def ring(ranks=8):
        for c in range(ranks):
            passed = chunk("input", c, c)
            for step in range(1, ranks):
                passed = chunk("input", (c + step) % ranks, c).reduce(passed)
            for step in range(ranks, 2 * ranks - 1):
                passed = passed.assign("input", (c + step) % ranks, c)
"""

from __future__ import annotations

from synth.lang.algorithm import Algorithm, program
from synth.lang.chunks import Chunk, chunk

__all__ = ["Algorithm", "Chunk", "chunk", "program"]
