"""Three-step all_to_all: gather on one GPU, cross, scatter, so that a pair of nodes shares one link.

GPU g of node m serves the nodes n with n % gpus == g: what its node has for n crosses as one message.
"""

from synth.lang import chunk, program


@program("all_to_all", ranks=lambda nodes, gpus: (nodes, gpus))
def three_step_alltoall(nodes=2, gpus=4):
    for m in range(nodes):
        for n in range(nodes):
            away, home = (m, n % gpus), (n, m % gpus)
            for i in range(gpus):
                block = chunk("input", (m, i), (n, 0), size=gpus)
                if m == n:
                    for g in range(gpus):
                        chunk("input", (m, i), (n, g)).assign("output", (n, g), (m, i))
                else:
                    block.assign(f"to {n}", away, i * gpus)
            if m != n:
                chunk(f"to {n}", away, 0, size=gpus * gpus).assign(f"from {m}", home, 0)
                for i in range(gpus):
                    for g in range(gpus):
                        chunk(f"from {m}", home, i * gpus + g).assign("output", (n, g), (m, i))
