"""Networks after failures: ranks and links that are gone, and the network that is left.

A failed rank keeps its number, so that reports still name the same machine. It loses its links and no longer
takes part in collectives.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np

from probes.base import Indices, Mask, UsageError, floats, ints, offsets, quoted, some
from synth.collective import MOST_RANKS
from synth.network import Network

__all__ = ["Failures", "failures_of", "kept_links", "without"]

# Most failures that a name or message lists; if there are more, their number follows.
_SHOWN = 16


@dataclass(frozen=True)
class Failures:
    """Failed ranks and failed directed links.

    A link (src, dst) stands for all parallel links from src to dst. ``text`` is the notation from which the
    failures were read, if any.
    """

    ranks: tuple[int, ...] = ()
    links: tuple[tuple[int, int], ...] = ()
    text: str = ""

    def __bool__(self) -> bool:
        return bool(self.ranks or self.links)

    def __str__(self) -> str:
        parts = [f"rank:{rank}" for rank in self.ranks] + [f"link:{src}>{dst}" for src, dst in self.links]
        more = f",… ({len(parts)} in all)" if len(parts) > _SHOWN else ""
        return self.text or ",".join(parts[:_SHOWN]) + more


def failures_of(text: str, network: Network) -> Failures:
    """Return the failures that a text such as ``rank:7,link:3-4,link:5>6,host:n2`` names.

    ``link:3-4`` means both directions, ``link:5>6`` only one. Raises UsageError for any other notation.
    """
    ranks: list[int] = []
    links: list[tuple[int, int]] = []
    for part in text.split(","):
        noun, _, value = part.strip().partition(":")
        several = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", value)
        ends = re.fullmatch(r"([0-9]{1,9})\s*([->])\s*([0-9]{1,9})", value)
        if noun == "rank" and several and int(several[1]) <= int(several[2] or several[1]) < MOST_RANKS:
            ranks += range(int(several[1]), int(several[2] or several[1]) + 1)
        elif noun == "link" and ends:
            src, dst = int(ends[1]), int(ends[3])
            links += [(src, dst), (dst, src)] if ends[2] == "-" else [(src, dst)]
        elif noun == "host" and value in network.hosts:
            ranks += [rank for rank, host in enumerate(network.hosts) if host == value]
        else:
            if noun == "host":
                names = list(dict.fromkeys(network.hosts))
                problem = f": {network.name} has no host {quoted(value)}"
                raise UsageError(problem, hint=f"Its hosts are {some(names, _SHOWN)}.", argument="without")
            raise UsageError(
                f": found {quoted(part.strip())}",
                hint="Write rank:7, rank:4-7, link:3-4 (both ways), link:3>4 or host:NAME, with commas.",
                argument="without",
            )
    return Failures(tuple(sorted(set(ranks))), tuple(dict.fromkeys(links)), text)


def without(network: Network, failures: Failures) -> Network:
    """Return ``network`` without the failures; raise UsageError if one of them does not exist."""
    gone = np.isin(network.src, failures.ranks) | np.isin(network.dst, failures.ranks)
    for rank in failures.ranks:
        if not 0 <= rank < network.ranks:
            raise UsageError(
                f" rank:{rank}: {network.name} has ranks 0 to {network.ranks - 1}", argument="without"
            )
    for src, dst in failures.links:
        between = (network.src == src) & (network.dst == dst)
        if not between.any():
            raise UsageError(f" link: {network.name} has no link {src} → {dst}", argument="without")
        gone |= between
    if network.ranks - len(set(failures.ranks)) < 1:
        raise UsageError(f": no rank of {network.name} is left", argument="without")
    return replace(kept_links(network, np.flatnonzero(~gone)), name=f"{network.name} without {failures}")


def kept_links(network: Network, rows: Indices | Mask) -> Network:
    """Return ``network`` with only these links; unused ports stay, so that port numbers hold."""
    kept = np.arange(network.links)[rows]
    _, ports = network.ports_along(kept)
    return replace(
        network,
        src=ints(network.src[kept]),
        dst=ints(network.dst[kept]),
        alpha_s=floats(network.alpha_s[kept]),
        beta_s_per_byte=floats(network.beta_s_per_byte[kept]),
        link_port_start=ints(offsets(np.diff(network.link_port_start)[kept])),
        link_port=ints(ports),
    )
