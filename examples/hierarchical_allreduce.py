"""Hierarchical all_reduce (GC3 Sec. 6.3): rings inside the nodes, then across, then inside again."""

from synth.lang import chunk, program


def ring(ranks, first, size, reduce):
    """Each block of chunks goes round once: up to its owner, adding up; or from its owner, copying."""
    for at in range(len(ranks)):
        turn = ranks[at + reduce :] + ranks[: at + reduce]
        passed = chunk("input", turn[0], first + at * size, size=size)
        for rank in turn[1:]:
            here = chunk("input", rank, first + at * size, size=size)
            passed = here.reduce(passed) if reduce else here.assign(passed)


@program(
    "all_reduce", lambda nodes, gpus: (nodes, gpus), chunks=lambda nodes, gpus: nodes * gpus, in_place=True
)
def hierarchical_allreduce(nodes=2, gpus=4):
    inside = [[(n, g) for g in range(gpus)] for n in range(nodes)]
    across = [[(n, g) for n in range(nodes)] for g in range(gpus)]
    for ranks in inside:
        ring(ranks, 0, nodes, True)
    for reduce in (True, False):
        for g, ranks in enumerate(across):
            ring(ranks, g * nodes, 1, reduce)
    for ranks in inside:
        ring(ranks, 0, nodes, False)
