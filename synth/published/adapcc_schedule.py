"""A method that solves AdapCC's published integer program and returns its strategy as a schedule.

The program decides the trees, the sizes of the parts S_m and of their chunks C_m, and the ranks that
aggregate partial sums (a). A rank that does not aggregate (a = 0) forwards each received packet as a separate
send beside its own data. Sends carry addends, and the next rank that aggregates adds them up. All C_m are
multiples of a chunk of the schedule; the chunks of one C_m are sent in a row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from probes.base import bytes_of, ints, offsets
from synth.collective import Collective
from synth.errors import NotApplicableError
from synth.network import Network
from synth.published.adapcc_milp import Choice, PublishedStrategy, Question, SubCollective, blocks, solve
from synth.schedules import COPY, REDUCE, Outcome, Schedule
from synth.simulation import replay

__all__ = ["MOST_RANKS", "schedule_of", "synthesize"]

# The most ranks, and the number M of sub-collectives. Both are small, because they multiply the size of the
# program.
MOST_RANKS = 5
_SUB_COLLECTIVES = 2
# The C_m that are tried, in chunks of the schedule.
_CHUNK_UNITS = (1, 4, 16)
# The S_m that are tried for two parts, in eighths of the tensor; the parts may be uneven.
_PARTS_OF_TWO = (2, 4, 6)


def synthesize(
    network: Network,
    shape: Collective,
    chunk_bytes: int,
    *,
    seed: int = 0,
    time_limit_s: float = 60.0,
    solver: str = "cbc",
    sub_collectives: int = _SUB_COLLECTIVES,
) -> Schedule:
    """Return the schedule of the best strategy found in time; its outcome has the program's gap.

    The gap is between the strategy's time by equation 4 and the solver's proven bound. Raises
    NotApplicableError for collectives other than reduce, broadcast and all_reduce of all ranks, and for more
    than ``MOST_RANKS`` ranks.
    """
    if shape.kind not in ("reduce", "broadcast", "all_reduce") or shape.parts or shape.members:
        raise NotApplicableError(f"adapcc_published does not serve {shape.label}")
    if network.ranks > MOST_RANKS:
        raise NotApplicableError(
            f"adapcc_published serves at most {MOST_RANKS} ranks, {network.name} has {network.ranks}: "
            "adapcc serves more"
        )
    question = Question(
        network,
        "broadcast" if shape.kind == "broadcast" else "reduce",
        shape.chunks * chunk_bytes,
        max(1, min(sub_collectives, shape.chunks)),
        tuple(_choices(shape.chunks, chunk_bytes, min(sub_collectives, shape.chunks))),
        None if shape.kind == "all_reduce" else shape.root,
    )
    strategy = solve(question, solver=solver, time_limit_s=time_limit_s, seed=seed)
    schedule = schedule_of(strategy, shape, chunk_bytes, seed)
    gap = 1.0 - strategy.bound_s / strategy.time_s if strategy.time_s else 0.0
    outcome = Outcome(replay(schedule).time_s, (), "feasible", max(0.0, gap))
    return replace(schedule, outcome=outcome)


def _choices(chunks: int, chunk_bytes: int, sub_collectives: int) -> Iterator[Choice]:
    """Yield each S_m with a C_m of one chunk, and with each larger C_m that fits twice."""
    if chunks % sub_collectives:
        sizes = [chunks // sub_collectives, -(-chunks // sub_collectives)]
    elif sub_collectives == 2 and chunks % 8 == 0:
        sizes = [chunks * part // 8 for part in _PARTS_OF_TWO]
    else:
        sizes = [chunks // sub_collectives]
    for size in sizes:
        for units in _CHUNK_UNITS:
            if units == 1 or 2 * units <= size:
                yield Choice(size * chunk_bytes, units * chunk_bytes)


def schedule_of(strategy: PublishedStrategy, shape: Collective, chunk_bytes: int, seed: int) -> Schedule:
    """Return the sends of a strategy whose sizes are multiples of ``chunk_bytes``; O(chunks · ranks²)."""
    table = _Table(strategy, shape)
    for part, first, count in blocks(strategy.parts, chunk_bytes):
        for chunk in range(first, first + count):
            table.chunk(part, chunk)
    chunks, link, op = np.array(table.rows, dtype=np.int64).reshape(-1, 3).T
    apart = any(part.aggregates != table.receivers(part) for part in strategy.parts)
    held = apart and shape.reduces
    flat = [one for addends in table.addends for one in addends] if held else []
    return Schedule(
        strategy.question.network,
        shape,
        chunk_bytes,
        "adapcc_published",
        seed,
        ints(chunks),
        ints(link),
        bytes_of(op),
        addend_start=ints(offsets([len(addends) for addends in table.addends]) if held else []),
        addend=ints(flat),
    )


class _Table:
    """The sends so far, in order, with their addends."""

    def __init__(self, strategy: PublishedStrategy, shape: Collective) -> None:
        self._network, self._shape = strategy.question.network, shape
        self.rows: list[tuple[int, int, int]] = []
        self.addends: list[list[int]] = []
        self._back = {
            (int(src), int(dst)): link
            for link, (src, dst) in enumerate(zip(self._network.src, self._network.dst, strict=True))
        }

    def receivers(self, part: SubCollective) -> frozenset[int]:
        """Return the ranks that receive a flow of a part, without its root."""
        into = [int(self._network.dst[path[0]]) for path in part.paths.values() if path]
        return frozenset(into) - {part.root}

    def chunk(self, part: SubCollective, chunk: int) -> None:
        if self._shape.kind == "broadcast":
            self._spread(part, chunk)
            return
        above = {flow[0]: path[0] for flow, path in part.paths.items() if path}
        depth = {flow[0]: len(path) for flow, path in part.paths.items()}
        came: dict[int, list[int]] = defaultdict(list)
        for rank in sorted(above, key=lambda rank: -depth[rank]):
            together = [[-1, *came[rank]]]
            packets = together if rank in part.aggregates else [[-1], *([row] for row in came[rank])]
            onward = int(self._network.dst[above[rank]])
            for packet in packets:
                came[onward].append(self._send(chunk, above[rank], REDUCE, packet))
        if self._shape.kind == "all_reduce":
            for rank in sorted(above, key=lambda rank: depth[rank]):
                there = (int(self._network.dst[above[rank]]), rank)
                if there not in self._back:
                    raise NotApplicableError(
                        f"adapcc_published: no link leads back from {there[0]} to {rank}"
                    )
                self._send(chunk, self._back[there], COPY, [])

    def _spread(self, part: SubCollective, chunk: int) -> None:
        reached = set()
        for path in sorted(part.paths.values(), key=len):
            for link in path:
                if (rank := int(self._network.dst[link])) not in reached:
                    reached.add(rank)
                    self._send(chunk, link, COPY, [])

    def _send(self, chunk: int, link: int, op: int, addends: list[int]) -> int:
        self.rows.append((chunk, int(link), op))
        self.addends.append(addends)
        return len(self.rows) - 1
