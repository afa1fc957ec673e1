"""Profiles of a topology: its links at the rates that are expected of them, with noise."""

from itertools import permutations

import numpy as np
from given_profile import profile_of_links

from probes.link_costs import ProfiledRank
from probes.paths.bandwidth import load
from probes.paths.expected import Expected
from probes.paths.nic_affinity import nearest_nic


def profile_of(topology, *, factor=1.0, seed=1, rates=None, slow=None):
    """A profile of all GPUs: ``rates`` in GB/s by rank, else as expected within 8 %, times ``factor``.

    ``slow`` maps (rank, rank) to a factor of its own.
    """
    chance = np.random.default_rng(seed)
    places = [(host, gpu) for host in topology.hosts for gpu in host.usable_gpus]
    found = [
        (src, dst, gbs)
        for src, dst in permutations(range(len(places)), 2)
        if (gbs := _gbs(places[src], places[dst]) if rates is None else rates[src, dst]) is not None
    ]
    src, dst, gbs = (np.array(column) for column in zip(*found, strict=True))
    if rates is None:
        gbs = gbs * factor * chance.uniform(0.92, 1.08, len(gbs))
    gbs = gbs * np.array([(slow or {}).get((int(a), int(b)), 1.0) for a, b in zip(src, dst, strict=True)])
    return profile_of_links(
        [ProfiledRank(rank, host.name, f"cuda:{gpu.index}") for rank, (host, gpu) in enumerate(places)],
        zip(src, dst, strict=True),
        2e-6,
        1e-9 / gbs,
        alphas=(1, 1, 1.5),
        betas=(1, 1.02, 1.1, 0.98, 1.02),
        residual=0.01,
        samples=20,
        transport="cuda",
    )


def _gbs(here, there):
    (host, gpu), (other, peer) = here, there
    if host is other:
        way = Expected(host, load()).between(gpu, peer)
        # A copy goes over PCIe where two GPUs have NVLinks to a third only.
        return 12.0 if way.path == "NVB" else way.gbs
    return min(nearest_nic(host, gpu).speed_mbit, nearest_nic(other, peer).speed_mbit) / 8000
