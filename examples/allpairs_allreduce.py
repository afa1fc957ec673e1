"""All-pairs all_reduce: every rank gathers its share of all ranks, adds it up, and sends it to all.

Two steps whatever the number of ranks: best for small buffers behind one switch (GC3 Sec. 6.2).
"""

from synth.lang import chunk, program


@program(
    "all_reduce", ranks=lambda ranks: ranks, chunks=lambda ranks: ranks * ranks, protocol="LL", in_place=True
)
def allpairs_allreduce(ranks=8):
    for owner in range(ranks):
        for other in range(ranks):
            if other != owner:
                share = chunk("input", other, owner * ranks, size=ranks)
                share.assign(f"from {other}", owner, 0)
        for at in range(ranks):
            total = chunk("input", owner, owner * ranks + at)
            for other in range(ranks):
                if other != owner:
                    total = total.reduce(chunk(f"from {other}", owner, at))
        for other in range(ranks):
            if other != owner:
                chunk("input", owner, owner * ranks, size=ranks).assign("input", other, owner * ranks)
