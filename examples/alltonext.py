"""AllToNext (GC3 Fig. 10): rank r sends its buffer to r + 1; between nodes all GPUs help to carry it."""

from synth.lang import chunk, program


@program("all_to_next", ranks=lambda nodes, gpus: (nodes, gpus), chunks=lambda gpus: gpus)
def alltonext(nodes=2, gpus=4):
    for n in range(nodes):
        for g in range(gpus):
            if g != gpus - 1:
                chunk("input", (n, g), 0, size=gpus).assign("output", (n, g + 1), 0)
            elif n != nodes - 1:
                for i in range(gpus):
                    c = chunk("input", (n, g), i)
                    if i != g:
                        c = c.assign("out", (n, i), 0)
                    if i != 0:
                        c = c.assign("in", (n + 1, i), 0)
                    c.assign("output", (n + 1, 0), i)
