"""The assignment of instructions to threadblocks and channels (GC3 Sec. 5.2 and 5.4).

Each end of a channel between two ranks belongs to one threadblock. So a fused instruction ties the peer that
it receives from to the peer that it sends to, for all messages of that channel; a chunk that is forwarded to
another peer takes another channel. Local instructions go to the threadblock that was idle longest, those of
switches to their own (`synth.compiler.switches`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from probes.base import Indices
from synth.compiler.instruction_dag import InstructionDag
from synth.compiler.placing import first_fit, overtaken, place_local

__all__ = ["MOST_CHANNELS", "Blocks", "assigned", "heads_of", "looked_up", "lowest_channels"]

# MSCCL's runtime refuses more channels.
MOST_CHANNELS = 32
# MSCCL's and RCCL's runtimes take this many peers on each channel of a rank.
_MOST_PEERS = 32
# The channel of threadblocks that have no peer.
_LOCAL_CHANNEL = 0
# More than any channel number, so that peers and channel fit in one key.
_CHANNELS = 1 << 16


@dataclass(frozen=True, eq=False)
class Blocks:
    """``block[n]`` is the threadblock of row n; the other columns describe the threadblocks."""

    block: Indices
    rank: Indices
    send: Indices
    recv: Indices
    channel: Indices


def assigned(dag: InstructionDag, place: Indices, lowest: Indices) -> tuple[Blocks | None, Indices]:
    """Return (the threadblocks, no rows) or (None, the fused rows that must be split first).

    ``lowest`` is the lowest channel that each row's chain of messages may take; it is raised in place for
    messages that would overtake others. A channel that the author chose stays.
    """
    if dag.dag.by_hand:
        channel = np.where(dag.channel >= 0, dag.channel, dag.instance)
        ahead, behind = overtaken(*_in_order_of_sends(dag, place), place, channel)
        if len(ahead):
            return None, _fused_among(dag, ahead, behind)
        return _by_hand(dag, channel), ahead
    found, bad = _channels(dag, place, lowest)
    if found is None:
        return None, bad
    return _automatic(dag, place, found), bad


def _channels(dag: InstructionDag, place: Indices, lowest: Indices) -> tuple[Indices | None, Indices]:
    """Return (the channel of each row's messages, no rows) or (None, the fused rows to split)."""
    peers = dag.rank * np.int64(dag.dag.collective.ranks)
    out = np.where(dag.receiver >= 0, peers + dag.send_to, -1)
    into = np.where(dag.sender >= 0, dag.recv_from * np.int64(dag.dag.collective.ranks) + dag.rank, -1)
    names, number = np.unique(np.concatenate([out, into]), return_inverse=True)
    out, into = number[: dag.rows], number[dag.rows :]
    heads = np.flatnonzero((dag.receiver >= 0) & (dag.sender < 0))
    heads = heads[np.argsort(place[heads], kind="stable")]
    span = max(MOST_CHANNELS, int(dag.channel.max(initial=0)) + 1, dag.dag.instances)
    receives, head_of = _in_order_of_sends(dag, place), heads_of(dag)
    while True:
        channel, bad = first_fit(
            heads,
            dag.receiver,
            out,
            into,
            dag.channel,
            dag.instance,
            lowest,
            len(names),
            dag.dag.instances,
            span,
        )
        if len(bad):
            return None, _passed_on(dag, bad)
        ahead, behind = overtaken(*receives, place, channel)
        movable = dag.channel[ahead] < 0
        if not len(ahead):
            return channel, ahead
        if not movable.all():
            return None, _fused_among(dag, ahead[~movable], behind[~movable])
        chain = head_of[ahead]
        lowest[chain] = channel[chain] + 1


def lowest_channels(dag: InstructionDag) -> Indices:
    """Return the lowest channel of each row's chain: 0, or one by the distance to the peer if peers are many.

    So no rank has more peers on a channel than runtimes take.
    """
    ranks = np.int64(dag.dag.collective.ranks)
    sends = dag.receiver >= 0
    pairs = np.unique(dag.rank[sends] * ranks + dag.send_to[sends])
    found = np.zeros(dag.rows, dtype=np.int64)
    if np.bincount(pairs // ranks, minlength=1).max() > _MOST_PEERS:
        away = (dag.send_to[sends] - dag.rank[sends]) % ranks
        found[sends] = (away - 1) // _MOST_PEERS * dag.dag.instances
    return found


def heads_of(dag: InstructionDag) -> Indices:
    """Return the first row of each row's chain."""
    head = np.arange(dag.rows)
    sender = np.where(dag.sender >= 0, dag.sender, head)
    while True:
        further = sender[sender]
        if (further == sender).all():
            return sender
        sender = further


def _passed_on(dag: InstructionDag, heads: Indices) -> Indices:
    """Return the fused rows of the chains that start with ``heads``."""
    return np.flatnonzero((dag.sender >= 0) & (dag.receiver >= 0) & np.isin(heads_of(dag), heads))


def _in_order_of_sends(dag: InstructionDag, place: Indices) -> tuple[Indices, Indices]:
    """Return (receives by their two ranks, and then by their sends; a number of each row's two ranks)."""
    pair = dag.recv_from * np.int64(dag.dag.collective.ranks) + dag.rank
    receives = np.flatnonzero(dag.sender >= 0)
    return receives[np.lexsort((place[dag.sender[receives]], pair[receives]))], pair


def _fused_among(dag: InstructionDag, ahead: Indices, behind: Indices) -> Indices:
    """Return the fused rows at either end of these messages."""
    rows = np.concatenate([ahead, behind, dag.sender[ahead], dag.sender[behind]])
    return np.unique(rows[(dag.sender[rows] >= 0) & (dag.receiver[rows] >= 0)])


def _automatic(dag: InstructionDag, place: Indices, channel: Indices) -> Blocks:
    """Return a threadblock for each channel end; fused rows tie a sending end to a receiving end."""
    ranks, rows = np.int64(dag.dag.collective.ranks), dag.rows
    chosen = dag.tb >= 0
    talks = ((dag.sender >= 0) | (dag.receiver >= 0)) & ~chosen
    # The keys are (rank, peer, channel) of sending and receiving ends. ``to`` is the peer of the sending end
    # tied to a receiving end; ``source`` is the reverse.
    key_out = np.where(dag.receiver >= 0, (dag.rank * ranks + dag.send_to) * _CHANNELS + channel, -1)
    key_in = np.where(dag.sender >= 0, (dag.rank * ranks + dag.recv_from) * _CHANNELS + channel, -1)
    tied = (dag.sender >= 0) & (dag.receiver >= 0)
    to = looked_up(key_in[tied], dag.send_to[tied], key_in)
    source = looked_up(key_out[tied], dag.recv_from[tied], key_out)
    send = np.where(dag.receiver >= 0, dag.send_to, to)
    recv = np.where(dag.sender >= 0, dag.recv_from, source)
    if chosen.any():
        ends = np.unique(np.stack([dag.rank, dag.tb], axis=1)[chosen], axis=0, return_inverse=True)[1].ravel()
        for column, peer in ((send, dag.send_to), (recv, dag.recv_from), (channel, channel)):
            most = np.full(ends.max() + 1, -1)
            np.maximum.at(most, ends, peer[chosen])
            column[chosen] = most[ends]
        channel = np.maximum(channel, _LOCAL_CHANNEL)
    local, placed = ~talks & ~chosen, talks | chosen
    rank_alone = np.setdiff1d(dag.rank[local], dag.rank[placed])
    columns = np.stack([dag.rank, channel, send < 0, send, recv, dag.tb], axis=1)[placed]
    alone = np.zeros((len(rank_alone), 6), dtype=np.int64)
    alone[:, 0], alone[:, 2:] = rank_alone, (1, -1, -1, -1)
    table, number = np.unique(np.concatenate([columns, alone]), axis=0, return_inverse=True)
    block = np.full(rows, -1, dtype=np.int64)
    block[placed] = number.ravel()[: int(placed.sum())]
    order = np.argsort(place, kind="stable")
    first = np.searchsorted(table[:, 0], np.arange(int(ranks) + 1))
    place_local(order, dag.rank, dag.needs.start, dag.needs.before, local, first, block)
    return Blocks(block, table[:, 0], table[:, 3], table[:, 4], table[:, 1])


def looked_up(keys: Indices, values: Indices, wanted: Indices) -> Indices:
    """Return the value of each wanted key, or -1; keys below 0 have no value."""
    if not len(keys):
        return np.full(len(wanted), -1, dtype=np.int64)
    names, first = np.unique(keys, return_index=True)
    at = np.minimum(np.searchsorted(names, wanted), len(names) - 1)
    return np.where((names[at] == wanted) & (wanted >= 0), values[first[at]], -1)


def _by_hand(dag: InstructionDag, channel: Indices) -> Blocks:
    keys = np.stack([dag.rank, dag.tb], axis=1)
    table, block = np.unique(keys, axis=0, return_inverse=True)
    block = block.ravel()
    send, recv, channels = (np.full(len(table), -1, dtype=np.int64) for _ in range(3))
    talks = (dag.sender >= 0) | (dag.receiver >= 0)
    np.maximum.at(send, block, dag.send_to)
    np.maximum.at(recv, block, dag.recv_from)
    np.maximum.at(channels, block[talks], channel[talks])
    return Blocks(block, table[:, 0], send, recv, np.maximum(channels, _LOCAL_CHANNEL))
