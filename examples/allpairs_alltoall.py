"""Direct all_to_all: every chunk goes straight from its source to its destination."""

from synth.lang import chunk, program


@program("all_to_all", ranks=lambda ranks: ranks)
def allpairs_alltoall(ranks=8):
    for source in range(ranks):
        for target in range(ranks):
            chunk("input", source, target).assign("output", target, source)
