"""Recursive halving, then doubling: 2 log2(ranks) steps, each rank talks to a partner twice as far away."""

from synth.lang import chunk, program


@program("all_reduce", ranks=lambda ranks: ranks, chunks=lambda ranks: ranks, in_place=True)
def halving_doubling_allreduce(ranks=8):
    if ranks & (ranks - 1):
        raise ValueError(f"ranks must be a power of two, not {ranks}")
    distance, size = ranks // 2, ranks // 2
    while size:
        for rank in range(ranks):
            partner = rank ^ distance
            theirs = partner // size * size
            into = chunk("input", partner, theirs, size=size)
            into.reduce(chunk("input", rank, theirs, size=size))
        distance, size = distance // 2, size // 2
    distance = size = 1
    while size < ranks:
        for rank in range(ranks):
            mine = rank // size * size
            chunk("input", rank, mine, size=size).assign("input", rank ^ distance, mine)
        distance, size = distance * 2, size * 2
