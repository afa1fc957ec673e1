"""A network of one host as `profile` measures it: links, and the costs of copies in memory."""

from dataclasses import replace
from itertools import permutations

from probes.link_costs import HostMemory
from synth.network import Link, build


def measured_host(ranks=2, cores=2):
    """Ranks that fetch more slowly what another has just written."""
    memory = HostMemory(
        "h", (1 << 12, 1 << 26), (1e-10, 2e-10), (1e-10, 2e-10), (2e-10, 4e-10), (3e-10, 5e-10), cores
    )
    links = [Link(*ends, 2e-6, 3e-10, (f"{ends[1]} in",)) for ends in permutations(range(ranks), 2)]
    return replace(build("host", ["h"] * ranks, links), memory=(memory,), measured=True, queues=True)
