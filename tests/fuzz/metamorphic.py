"""Changes to a network after which it is known how bounds and times must change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from probes.base.columns import bytes_of, floats, ints
from synth.collective import Collective
from synth.network import Link, Network, build
from synth.schedules import Schedule

__all__ = ["relabelled", "reordered", "scaled", "split", "with_link", "without_link"]


def _built(network: Network, hosts: Sequence[str], links: list[Link]) -> Network:
    found = build(network.name, hosts, links, hold_alpha=network.hold_alpha)
    own_s = dict(zip(network.ports, network.port_beta_s_per_byte.tolist(), strict=False))
    rated = floats([own_s[port] for port in found.ports] if own_s else [])
    return replace(found, queues=network.queues, port_beta_s_per_byte=rated)


def scaled(network: Network, alpha: float, beta: float) -> Network:
    """All latencies times ``alpha``, all bytes take ``beta`` times as long."""
    return replace(
        network,
        alpha_s=floats(network.alpha_s * alpha),
        beta_s_per_byte=floats(network.beta_s_per_byte * beta),
        port_beta_s_per_byte=floats(network.port_beta_s_per_byte * beta),
    )


def relabelled(schedule: Schedule, order: Sequence[int]) -> Schedule:
    """The same schedule, rank r being called ``order[r]``; of any collective but all_to_next.

    Chunks of all_gather, reduce_scatter, scatter and gather belong to the rank of their number, so they move
    along; those of all_to_all to two.
    """
    network, collective = schedule.network, schedule.collective
    place = np.asarray(order)
    hosts = [network.hosts[rank] for rank in np.argsort(place)]
    links = [link._replace(src=int(place[link.src]), dst=int(place[link.dst])) for link in network.as_links()]
    return replace(
        schedule,
        network=_built(network, hosts, links),
        collective=replace(collective, root=int(place[collective.root])),
        chunk=ints(_chunks(collective, place)[schedule.chunk]),
        outcome=None,
    )


def _chunks(collective: Collective, place: np.ndarray) -> np.ndarray:
    chunk, share = np.arange(collective.chunks), collective.share
    if collective.kind in ("all_gather", "reduce_scatter", "scatter", "gather"):
        return place[chunk // share] * share + chunk % share
    if collective.kind == "all_to_all":
        ranks = collective.ranks
        source, target = chunk // (ranks * share), chunk // share % ranks
        return (place[source] * ranks + place[target]) * share + chunk % share
    return chunk


def reordered(schedule: Schedule, links: Sequence[int], ports: Sequence[int]) -> Schedule:
    """The same schedule, its links in another order (``links[row]`` was there before), its ports, too."""
    network = schedule.network
    table = network.as_links()
    renamed = _built(network, network.hosts, [table[link] for link in links])
    place = np.argsort(np.asarray(ports, dtype=np.int64))
    moved = replace(
        renamed,
        ports=tuple(renamed.ports[port] for port in ports),
        link_port=ints(place[renamed.link_port]) if len(renamed.link_port) else renamed.link_port,
    )
    row_of = np.argsort(np.asarray(links))
    return replace(schedule, network=moved, link=ints(row_of[schedule.link]), outcome=None)


def with_link(network: Network, link: Link) -> Network:
    return _built(network, network.hosts, [*network.as_links(), link])


def without_link(network: Network, row: int) -> Network:
    table = network.as_links()
    return _built(network, network.hosts, table[:row] + table[row + 1 :])


def split(schedule: Schedule) -> Schedule:
    """The same schedule with every chunk cut into two of half the bytes, one sent behind the other."""
    collective, share = schedule.collective, schedule.collective.share
    owner, part = schedule.chunk // share, schedule.chunk % share
    first = (owner * share + part) * 2
    return replace(
        schedule,
        collective=replace(collective, chunks=collective.chunks * 2),
        chunk_bytes=schedule.chunk_bytes // 2,
        chunk=ints(np.repeat(first, 2) + np.tile([0, 1], schedule.sends)),
        link=ints(np.repeat(schedule.link, 2)),
        op=bytes_of(np.repeat(schedule.op, 2)),
        outcome=None,
    )
