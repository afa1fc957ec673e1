"""Ring all_reduce (GC3 Sec. 6.2.1): every chunk goes round once to be added up, once to be copied.

With tbs=8 each chunk of a ring has a threadblock and a channel of its own, as in the paper.
"""

from synth.lang import chunk, program


@program("all_reduce", ranks=lambda ranks: ranks, chunks=lambda ranks: ranks, protocol="LL128", in_place=True)
def ring_allreduce(ranks=8, tbs=0):
    for c in range(ranks):
        tb = c % tbs if tbs else -1
        passed = chunk("input", c, c)
        for step in range(1, ranks):
            here = chunk("input", (c + step) % ranks, c)
            passed = here.reduce(passed, sendtb=tb, recvtb=tb, ch=tb)
        for step in range(ranks, 2 * ranks - 1):
            passed = passed.assign("input", (c + step) % ranks, c, sendtb=tb, recvtb=tb, ch=tb)
