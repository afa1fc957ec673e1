"""Link-centric greedy synthesis over bitsets: TACOS's matching of chunks to links (Sec. IV), event by event.

At every instant, each link that is free, and whose ports are free, takes a chunk that its source
holds and its destination neither holds nor awaits. Three choices decide the quality:

- *rarest of K*: among K sampled candidates the chunk with the fewest copies goes first;
- *cluster-first*: a slow link prefers chunks that no rank in the destination's cluster of faster
  links holds or awaits, so that slow links carry each chunk into a cluster once;
- *strict*: a slow link never carries a chunk that its destination's cluster already holds or awaits;
- *rotate*: when many links are free at once, those of equal distance between their ranks choose
  together, a perfect matching on a switch, so that no port is left without a partner.

What TACOS's release gets wrong cannot happen: a chunk is chosen when the link starts, from what the
source holds then, and is never exchanged afterwards. O(sends · chunks / 64) at worst.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from probes.columns import Bytes, Floats, Indices, Ints, bytes_of, ints
from probes.errors import UsageError
from synth.collective import Collective
from synth.cuts import cost_levels
from synth.events import is_free, occupy, pop, push
from synth.jit import compiled
from synth.network import Network
from synth.schedule import COPY, REDUCE, Schedule

__all__ = ["POLICIES", "Policy", "policies", "synthesize"]

_MOST_LEVELS = 8
_PLAIN, _CLUSTER, _STRICT = range(3)


@dataclass(frozen=True)
class Policy:
    """One way of choosing: which chunks a slow link prefers, and how many candidates it samples."""

    preference: int
    sample: int
    rotate: bool = False


POLICIES = (
    Policy(_CLUSTER, 16, rotate=True),
    Policy(_STRICT, 16, rotate=True),
    Policy(_CLUSTER, 16),
    Policy(_PLAIN, 16),
    Policy(_STRICT, 16),
    Policy(_CLUSTER, 1),
)


def policies(network: Network) -> tuple[Policy, ...]:
    """All policies, the most promising first: strict where a switch joins clusters of faster links."""
    if len(network.ports) and len(cost_levels(network)) > 1:
        return (POLICIES[1], POLICIES[0], *POLICIES[2:])
    return POLICIES


def synthesize(
    network: Network, collective: Collective, chunk_bytes: int, *, seed: int = 0, policy: Policy = POLICIES[0]
) -> Schedule:
    """One schedule by one policy and seed.

    reduce_scatter and reduce are the reversal in time of all_gather and broadcast on the transposed
    network; all_reduce is a reduce_scatter and an all_gather in one table, so that each chunk turns
    round as soon as it is complete (TACOS Sec. IV-D). Raises UsageError if a rank cannot be reached.
    """
    if collective.kind == "all_reduce":
        chunk, link, op = _all_reduce(network, collective, chunk_bytes, seed, policy)
    elif collective.reduces:
        chunk, link = _reversed(network, _copying(collective), chunk_bytes, seed, policy)
        op = np.full(len(chunk), REDUCE)
    else:
        chunk, link, _ = _spread(network, collective, chunk_bytes, seed, policy)
        op = np.full(len(chunk), COPY)
    return Schedule(network, collective, chunk_bytes, "greedy", seed, ints(chunk), ints(link), bytes_of(op))


def _copying(collective: Collective) -> Collective:
    return replace(collective, kind="all_gather" if collective.kind == "reduce_scatter" else "broadcast")


def _all_reduce(
    network: Network, collective: Collective, chunk_bytes: int, seed: int, policy: Policy
) -> tuple[Ints, Ints, Bytes]:
    """Chunk c is reduced at rank c mod N and spread from there."""
    ranks = network.ranks
    share = -(-collective.chunks // ranks)
    gather = Collective("all_gather", ranks, share * ranks)
    kept = np.arange(share * ranks).reshape(ranks, share).T.ravel()[: collective.chunks]
    number = np.full(share * ranks, -1)
    number[kept] = np.arange(collective.chunks)
    back_chunk, back_link = _reversed(network, gather, chunk_bytes, seed, policy)
    there_chunk, there_link, _ = _spread(network, gather, chunk_bytes, seed, policy)
    chunk = number[np.concatenate((back_chunk, there_chunk))]
    link = np.concatenate((back_link, there_link))
    op = np.concatenate((np.full(len(back_chunk), REDUCE), np.full(len(there_chunk), COPY)))
    used = chunk >= 0
    return chunk[used], link[used], op[used]


def _reversed(
    network: Network, collective: Collective, chunk_bytes: int, seed: int, policy: Policy
) -> tuple[Ints, Ints]:
    """Sends of the mirror image, last arrival first."""
    chunk, link, arrival_s = _spread(network.transposed(), collective, chunk_bytes, seed, policy)
    order = np.argsort(-arrival_s, kind="stable")
    return chunk[order], link[order]


def _spread(
    network: Network, collective: Collective, chunk_bytes: int, seed: int, policy: Policy
) -> tuple[Ints, Ints, Floats]:
    """Every chunk from its source to every rank: (chunk, link, arrival) in the order of starts."""
    level, cluster = _clusters(network)
    out_start, out_links, next_group = _by_first_port(network)
    port_start, port_links = network.port_links
    chunk, link, arrival_s, missing = _run(
        network.src,
        network.dst,
        network.hold_s(chunk_bytes),
        network.travel_s(chunk_bytes),
        network.link_port_start,
        network.link_port,
        port_start,
        port_links,
        out_start,
        out_links,
        next_group,
        level,
        cluster,
        collective.source_of(),
        network.ranks,
        policy.preference,
        policy.sample,
        policy.rotate,
        np.argsort((network.dst - network.src) % network.ranks, kind="stable"),
        seed,
    )
    if missing >= 0:
        raise UsageError(
            f"{network.name}: rank {missing} cannot be reached from every rank that has something for it"
        )
    return chunk, link, arrival_s


def _by_first_port(network: Network) -> tuple[Ints, Ints, Ints]:
    """(start, links out of each rank, for each row the next with another first port).

    A rank's many links through one busy port can then be passed over in one step.
    """
    start, links = network.out_links
    has_port = np.diff(network.link_port_start) > 0
    first = np.full(network.links, -1)
    first[has_port] = network.link_port[network.link_port_start[:-1][has_port]]
    links = links[np.lexsort((first[links], network.src[links]))]
    group_starts = np.flatnonzero(
        np.diff(first[links], prepend=-2).astype(bool) | np.diff(network.src[links], prepend=-1).astype(bool)
    )
    ends = np.append(group_starts[1:], len(links))
    return start, ints(links), ints(np.repeat(ends, np.diff(np.append(group_starts, len(links)))))


def _clusters(network: Network) -> tuple[Ints, Ints]:
    """(level of each link, [level, rank] cluster): clusters are joined by links of lower levels."""
    costs = cost_levels(network)[:_MOST_LEVELS]
    level = np.minimum(np.searchsorted(costs * (1 + 1e-9), network.beta_s_per_byte), len(costs) - 1)
    cluster = np.empty((len(costs), network.ranks), np.int32)
    for at in range(len(costs)):
        fast = level < at
        shape = (network.ranks, network.ranks)
        graph = coo_array((np.ones(int(fast.sum())), (network.src[fast], network.dst[fast])), shape=shape)
        cluster[at] = connected_components(graph, directed=True, connection="strong")[1]
    return level.astype(np.int32), cluster


Words = NDArray[np.uint64]


@compiled
def _run(
    src: Indices,
    dst: Indices,
    hold_s: Floats,
    travel_s: Floats,
    link_port_start: Indices,
    link_port: Indices,
    port_start: Indices,
    port_links: Indices,
    out_start: Indices,
    out_links: Indices,
    next_group: Indices,
    level: Indices,
    cluster: Indices,
    source: Indices,
    ranks: int,
    preference: int,
    sample: int,
    rotate: bool,
    turns: Indices,
    seed: int,
) -> tuple[Ints, Ints, Floats, int]:
    np.random.seed(seed)
    links, chunks, levels = len(src), len(source), len(cluster)
    words = (chunks + 63) // 64
    has = np.zeros((ranks, words), np.uint64)
    awaited = np.zeros((ranks, words), np.uint64)
    in_cluster = np.zeros((levels, ranks, words), np.uint64)
    copies = np.zeros(chunks, np.int32)
    for chunk in range(chunks):
        _set(has[source[chunk]], chunk)
        _await(awaited, in_cluster, cluster, source[chunk], chunk)
    total = chunks * (ranks - 1)
    sent_chunk = np.empty(total, np.int32)
    sent_link = np.empty(total, np.int32)
    arrival_s = np.empty(total)
    resource_free = np.ones(links + len(port_start) - 1, np.bool_)
    # Two kinds of events in one heap: -1 - send, its link is free again; send, it has arrived.
    heap_s = np.empty(min(2 * total, _most_in_flight(hold_s, travel_s)) + 1)
    heap_what = np.empty(len(heap_s), np.int64)
    heap_size = 0
    queued = np.ones(links, np.int64)
    candidate = np.empty(links, np.int32)
    candidates = links
    for link in range(links):
        candidate[link] = link
    sent = 0
    now_s = 0.0
    instant = 1
    while True:
        if rotate and 8 * candidates > links:
            candidates = _in_turns(turns, queued, instant, candidate)
        else:
            _shuffle(candidate, candidates)
        for at_level in range(levels):
            for at in range(candidates):
                link = candidate[at]
                if level[link] != at_level or not is_free(
                    link, resource_free, link_port_start, link_port, links
                ):
                    continue
                chunk = _choose(
                    has[src[link]],
                    awaited[dst[link]],
                    in_cluster[at_level, cluster[at_level, dst[link]]],
                    copies,
                    preference,
                    sample,
                )
                if chunk < 0:
                    continue
                _await(awaited, in_cluster, cluster, dst[link], chunk)
                copies[chunk] += 1
                occupy(link, resource_free, link_port_start, link_port, links, False)
                sent_chunk[sent] = chunk
                sent_link[sent] = link
                arrival_s[sent] = now_s + travel_s[link]
                heap_size = push(heap_s, heap_what, heap_size, now_s + hold_s[link], -1 - sent)
                heap_size = push(heap_s, heap_what, heap_size, arrival_s[sent], sent)
                sent += 1
        if heap_size == 0:
            break
        now_s = heap_s[0]
        instant += 1
        candidates = 0
        while heap_size > 0 and heap_s[0] <= now_s * (1 + 1e-12):
            what = heap_what[0]
            heap_size = pop(heap_s, heap_what, heap_size)
            if what < 0:
                link = sent_link[-1 - what]
                occupy(link, resource_free, link_port_start, link_port, links, True)
                if is_free(link, resource_free, link_port_start, link_port, links):
                    candidates = _offer(link, queued, instant, candidate, candidates)
                for at in range(link_port_start[link], link_port_start[link + 1]):
                    for other in range(port_start[link_port[at]], port_start[link_port[at] + 1]):
                        sibling = port_links[other]
                        if is_free(sibling, resource_free, link_port_start, link_port, links):
                            candidates = _offer(sibling, queued, instant, candidate, candidates)
            else:
                rank = dst[sent_link[what]]
                chunk = sent_chunk[what]
                _set(has[rank], chunk)
                at = out_start[rank]
                while at < out_start[rank + 1]:
                    link = out_links[at]
                    first = link_port_start[link]
                    if first < link_port_start[link + 1] and not resource_free[links + link_port[first]]:
                        at = next_group[at]
                        continue
                    at += 1
                    # An idle link had nothing to take before: only this chunk can be of use to it.
                    if not _has(awaited[dst[link]], chunk) and is_free(
                        link, resource_free, link_port_start, link_port, links
                    ):
                        candidates = _offer(link, queued, instant, candidate, candidates)
    missing = -1
    if sent < total:
        for rank in range(ranks):
            held = 0
            for chunk in range(chunks):
                held += (has[rank, chunk // 64] >> np.uint64(chunk % 64)) & np.uint64(1)
            if held < chunks:
                missing = rank
                break
    return sent_chunk[:sent], sent_link[:sent], arrival_s[:sent], missing


@compiled
def _most_in_flight(hold_s: Floats, travel_s: Floats) -> int:
    """How many events can be pending at once: one a link, and one for each send under way."""
    most = 0
    for link in range(len(hold_s)):
        most += 3 + int(min(travel_s[link] / hold_s[link], 1e9))
    return most


@compiled
def _choose(
    held: Words, awaited: Words, clustered: Words, copies: Indices, preference: int, sample: int
) -> int:
    """A chunk that is held and not awaited, the rarest of a sample, or -1."""
    if preference != _PLAIN:
        chunk = _rarest(held, clustered, copies, sample)
        if chunk >= 0 or preference == _STRICT:
            return chunk
    return _rarest(held, awaited, copies, sample)


@compiled
def _rarest(held: Words, excluded: Words, copies: Indices, sample: int) -> int:
    words = len(held)
    first = np.random.randint(64 * words)
    above = ~np.uint64(0) << np.uint64(first % 64)
    best = -1
    seen = 0
    for step in range(words + 1):
        at = (first // 64 + step) % words
        left = held[at] & ~excluded[at]
        if step == 0:
            left &= above
        elif step == words:
            left &= ~above
        while left != 0:
            bit = _lowest(left)
            left &= left - np.uint64(1)
            chunk = at * 64 + bit
            seen += 1
            if (
                best < 0
                or copies[chunk] < copies[best]
                or (copies[chunk] == copies[best] and np.random.randint(seen) == 0)
            ):
                best = chunk
            if seen >= sample:
                return best
    return best


@compiled
def _lowest(word: np.uint64) -> int:
    """The index of the lowest set bit."""
    bit = 0
    shift = 32
    while shift > 0:
        if word & ((np.uint64(1) << np.uint64(shift)) - np.uint64(1)) == 0:
            word >>= np.uint64(shift)
            bit += shift
        shift >>= 1
    return bit


@compiled
def _set(words: Words, chunk: int) -> None:
    words[chunk // 64] |= np.uint64(1) << np.uint64(chunk % 64)


@compiled
def _has(words: Words, chunk: int) -> bool:
    return bool(words[chunk // 64] & (np.uint64(1) << np.uint64(chunk % 64)) != 0)


@compiled
def _await(awaited: Words, in_cluster: Words, cluster: Indices, rank: int, chunk: int) -> None:
    _set(awaited[rank], chunk)
    for at in range(len(cluster)):
        _set(in_cluster[at, cluster[at, rank]], chunk)


@compiled
def _offer(link: int, queued: Indices, instant: int, candidate: Indices, candidates: int) -> int:
    if queued[link] == instant:
        return candidates
    queued[link] = instant
    candidate[candidates] = link
    return candidates + 1


@compiled
def _in_turns(turns: Indices, queued: Indices, instant: int, candidate: Indices) -> int:
    """The queued links, those of equal distance between their ranks together, from a random start on.

    On a switch the links of one distance are a perfect matching of egress to ingress ports.
    """
    first = np.random.randint(len(turns))
    count = 0
    for step in range(len(turns)):
        link = turns[(first + step) % len(turns)]
        if queued[link] == instant:
            candidate[count] = link
            count += 1
    return count


@compiled
def _shuffle(candidate: Indices, count: int) -> None:
    for at in range(count - 1, 0, -1):
        other = np.random.randint(at + 1)
        candidate[at], candidate[other] = candidate[other], candidate[at]
