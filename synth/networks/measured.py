"""Networks from measurements: a profile's ranks, links and shared ports."""

from __future__ import annotations

import numpy as np

from probes.base import floats, ints
from probes.link_costs import Profile
from synth.network import Network

__all__ = ["from_profile"]


def from_profile(profile: Profile, name: str = "profile", *, hold_alpha: bool = False) -> Network:
    """Return the network of ``profile``, with the least (not the median) costs of its links.

    The network queues if the profile was measured over MPI.
    """
    links = profile.links
    ports_of: list[list[int]] = [[] for _ in range(len(links.src))]
    for number, port in enumerate(profile.ports):
        for row in port.links:
            ports_of[row].append(number)
    own_s = [port.s_per_byte for port in profile.ports]
    return Network(
        name=name,
        hosts=tuple(rank.host for rank in profile.ranks),
        src=links.src,
        dst=links.dst,
        alpha_s=links.alpha_s,
        beta_s_per_byte=links.beta_s_per_byte,
        ports=tuple(port.name for port in profile.ports),
        link_port_start=ints(np.cumsum([0, *map(len, ports_of)])),
        link_port=ints([number for ports in ports_of for number in ports]),
        hold_alpha=hold_alpha,
        memory=profile.memory,
        queues=profile.transport == "mpi",
        port_beta_s_per_byte=floats(own_s if any(own_s) else []),
        measured=True,
    )
