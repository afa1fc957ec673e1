"""From the sends of some trees to a schedule: give each a place in line, then put them in start order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from probes.columns import Floats, Indices, Ints, bytes_of, ints
from synth.collective import Collective
from synth.errors import NotApplicableError
from synth.network import Network
from synth.schedule import Schedule
from synth.simulate import replay

__all__ = ["Sends", "fastest_links", "link_of"]


class Sends:
    """Collects sends, each with its turn: among sends that could start, the lowest turn goes first."""

    def __init__(self) -> None:
        self._blocks: list[tuple[Indices, Indices, Indices, Indices]] = []

    def add(self, chunk: int | Indices, link: int | Indices, op: int, turn: int | Indices) -> None:
        """``chunk`` goes over ``link``; its turn must be later than those of the sends it needs.

        Each may be one number or a column; they are broadcast against each other.
        """
        columns = np.broadcast_arrays(np.asarray(chunk), np.asarray(link), np.asarray(op), np.asarray(turn))
        flat = [column.ravel() for column in columns]
        self._blocks.append((flat[0], flat[1], flat[2], flat[3]))

    def schedule(
        self, network: Network, collective: Collective, chunk_bytes: int, method: str, seed: int = 0
    ) -> Schedule:
        """The schedule in which each send starts as soon as those of earlier turns let it."""
        chunk, link, op, turn = (
            np.concatenate([block[at] for block in self._blocks] or [np.zeros(0, np.int64)])
            for at in range(4)
        )
        order = np.argsort(turn, kind="stable")
        rough = Schedule(
            network,
            collective,
            chunk_bytes,
            method,
            seed,
            ints(chunk[order]),
            ints(link[order]),
            bytes_of(op[order]),
        )
        starts = np.argsort(replay(rough).start_s, kind="stable")
        return replace(
            rough,
            chunk=ints(rough.chunk[starts]),
            link=ints(rough.link[starts]),
            op=bytes_of(rough.op[starts]),
        )


def fastest_links(network: Network, chunk_bytes: int) -> dict[tuple[int, int], int]:
    """For each (src, dst) that a link joins, the row of the one that delivers a chunk first."""
    travel_s: Floats = network.travel_s(chunk_bytes)
    rows: Ints = np.argsort(-travel_s, kind="stable").astype(np.int32)
    return {(int(network.src[row]), int(network.dst[row])): int(row) for row in rows}


def link_of(links: dict[tuple[int, int], int], src: int, dst: int, method: str) -> int:
    """The row of the link src → dst; NotApplicableError if there is none."""
    try:
        return links[src, dst]
    except KeyError:
        raise NotApplicableError(f"{method} needs a link from rank {src} to rank {dst}") from None
