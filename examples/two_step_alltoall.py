"""Two-step all_to_all (GC3 Fig. 1): chunks for a node meet on its GPU's peer, then cross as one message."""

from synth.lang import chunk, program


@program("all_to_all", ranks=lambda nodes, gpus: (nodes, gpus))
def two_step_alltoall(nodes=2, gpus=4):
    for n in range(nodes):
        for g in range(gpus):
            for m in range(nodes):
                for i in range(gpus):
                    c = chunk("input", rank=(m, i), index=(n, g))
                    if n == m:
                        c.assign("output", rank=(n, g), index=(m, i))
                    else:
                        c.assign(f"for node {n}", rank=(m, g), index=i)
                if n != m:
                    c = chunk(f"for node {n}", rank=(m, g), index=0, size=gpus)
                    c.assign("output", rank=(n, g), index=(m, 0))
