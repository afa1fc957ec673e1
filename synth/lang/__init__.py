"""The chunk language: algorithms as Python functions that copy and reduce chunks (GC3 Sec. 3).

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

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
