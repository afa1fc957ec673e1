"""Profiles of clusters whose costs are known: hosts behind NICs, some of their parts slow."""

from collections.abc import Callable, Sequence
from itertools import permutations

import numpy as np
from given_profile import profile_of_links

from probes.link_costs import Profile, SharedPort

__all__ = ["ALPHA_S", "BETA", "INSIDE_BETA", "cluster_profile"]

# 100 Mbit/s between hosts, 8 Gbit/s within.
ALPHA_S, BETA, INSIDE_BETA = 50e-6, 8e-8, 1e-9
Factor = Callable[[str, str], float]


def cluster_profile(
    hosts: int | Sequence[str],
    slots: int = 1,
    *,
    beta: Factor = lambda src, dst: 1.0,
    extra_s: Factor = lambda src, dst: 0.0,
    ports: Sequence[SharedPort] = (),
    nics: int = 1,
    transport: str = "mpi",
) -> Profile:
    """Return the profile of hosts "gpu1", "gpu2", …: ``beta`` and ``extra_s`` say how slow links are.

    Each rank has a port each way as measured profiles have it, and so has each NIC; consecutive ranks share a
    NIC. ``ports`` are further ones.
    """
    names = [f"gpu{at + 1}" for at in range(hosts)] if isinstance(hosts, int) else list(hosts)
    of_rank = [name for name in names for _ in range(slots)]
    pairs = list(permutations(range(len(of_rank)), 2))
    ends = [(of_rank[src], of_rank[dst]) for src, dst in pairs]
    alpha_s = np.array([ALPHA_S * (0.1 if a == b else 1) + extra_s(a, b) for a, b in ends])
    cost = np.array([(INSIDE_BETA if a == b else BETA) * beta(a, b) for a, b in ends])
    rows: dict[tuple[str, str], list[int]] = {}
    for row, (src, dst) in enumerate(pairs):
        rows.setdefault((f"rank {src} egress", "process"), []).append(row)
        rows.setdefault((f"rank {dst} ingress", "process"), []).append(row)
        if of_rank[src] != of_rank[dst]:
            for rank, way in ((src, "egress"), (dst, "ingress")):
                nic = f" {rank % slots * nics // slots}" if nics > 1 else ""
                rows.setdefault((f"{of_rank[rank]} NIC{nic} {way}", "host"), []).append(row)
    shared = [SharedPort(name, tuple(its), method) for (name, method), its in rows.items()]
    its = {"ports": (*shared, *ports), "transport": transport, "library": "some MPI"}
    return profile_of_links(of_rank, pairs, alpha_s, cost, **its)
