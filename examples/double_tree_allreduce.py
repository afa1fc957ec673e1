"""Double binary tree: two trees in which inner ranks of one are leaves of the other carry half each."""

from synth.lang import chunk, program


def tree(ranks, shift):
    """(child, parent), leaves first; rank r + 1 hangs below its number with the lowest bit moved up."""
    edges = []
    for place in range(1, ranks):
        low = place & -place
        parent = (place ^ low) | (low << 1)
        parent = parent if parent < ranks else place ^ low
        edges.append((low, (place + shift) % ranks, (parent + shift) % ranks))
    return [edge[1:] for edge in sorted(edges)]


@program("all_reduce", ranks=lambda ranks: ranks, chunks=lambda chunks: 2 * chunks, in_place=True)
def double_tree_allreduce(ranks=8, chunks=2):
    for half in range(2):
        edges = tree(ranks, half)
        for index in range(half * chunks, (half + 1) * chunks):
            for child, parent in edges:
                chunk("input", parent, index).reduce(chunk("input", child, index))
            for child, parent in reversed(edges):
                chunk("input", parent, index).assign("input", child, index)
