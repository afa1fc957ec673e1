"""AdapCC's integer program as published (Sec. IV-D, equations 1 to 6), for networks of a few ranks.

For each of M sub-collectives the program decides the paths of its flows, the nodes that aggregate (a = 1),
and its root unless one is given. It also chooses the size of its part of the tensor, S_m, and its chunk size,
C_m, as a pair out of ``choices``. A chunk's time on a link is alpha + C·beta·N, where N is the
number of flows of all sub-collectives on the link or on a port that it shares. If a node aggregates, all
flows through it leave together when the last has arrived, and count as one flow. So a = 1 costs waiting time,
also in T_bottle, and a = 0 costs load.

Only ports and ``kernel_s``, the time of an aggregation, are additions to the paper. ``timed`` computes the
objective of a given strategy from the equations alone. ``solve`` finds the best strategy by an exact integer
program. Its size grows with flows times links times M, so it serves only a handful of ranks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, product
from typing import Literal

from probes.base import Floats
from synth.errors import NotApplicableError
from synth.milp import IntegerProgram, Status
from synth.network import Network

__all__ = [
    "Choice",
    "Flow",
    "Kind",
    "PublishedStrategy",
    "Question",
    "SubCollective",
    "blocks",
    "solve",
    "timed",
]

Kind = Literal["reduce", "broadcast", "all_to_all"]
Flow = tuple[int, int]


@dataclass(frozen=True)
class Choice:
    """S_m and C_m: the bytes of a part, and of its chunks."""

    size_bytes: int
    chunk_bytes: int

    @property
    def chunks(self) -> int:
        """The number of chunks of a flow."""
        return -(-self.size_bytes // self.chunk_bytes)


@dataclass(frozen=True)
class Question:
    """The problem: ``size_bytes`` in each flow, in ``sub_collectives`` parts of the given choices.

    With root None each part chooses its own root; only a reduce may do so.
    """

    network: Network
    kind: Kind
    size_bytes: int
    sub_collectives: int
    choices: tuple[Choice, ...]
    root: int | None = 0
    kernel_s: float = 0.0

    def flows(self) -> list[Flow]:
        """Return (source, target) of each flow; -1 is a root that is still to be chosen."""
        ranks = range(self.network.ranks)
        root = -1 if self.root is None else self.root
        if self.kind == "reduce":
            return [(rank, root) for rank in ranks]
        if self.kind == "broadcast":
            return [(root, rank) for rank in ranks if rank != root]
        return [(a, b) for a in ranks for b in ranks if a != b]


@dataclass(frozen=True)
class SubCollective:
    """One part: ``paths`` are the links of each flow; ``aggregates`` are the ranks with a = 1."""

    choice: Choice
    paths: Mapping[Flow, tuple[int, ...]]
    aggregates: frozenset[int] = frozenset()
    root: int | None = None


@dataclass(frozen=True)
class PublishedStrategy:
    """The best strategy, its time by equation 4, and the solver's proven bound and status."""

    question: Question
    parts: tuple[SubCollective, ...]
    time_s: float
    bound_s: float
    status: Status


def blocks(parts: tuple[SubCollective, ...], unit_bytes: int) -> Iterator[tuple[SubCollective, int, int]]:
    """Yield (part, first unit, units) of each chunk, ordered by its relative place in its part."""
    found, first = [], 0
    for number, part in enumerate(parts):
        units, step = part.choice.size_bytes // unit_bytes, part.choice.chunk_bytes // unit_bytes
        found += [(at / units, number, first + at, min(step, units - at)) for at in range(0, units, step)]
        first += units
    for _, number, at, size in sorted(found):
        yield parts[number], at, size


def timed(question: Question, parts: Sequence[SubCollective]) -> float:
    """Return the time at which the last flow of the given parts ends, by equation 4."""
    network = question.network
    loads = [_loads(question, part) for part in parts]
    busy: dict[int, float] = defaultdict(float)
    for load in loads:
        for link, flows in load.items():
            for resource in network.resources_of(link):
                busy[resource] += flows * float(network.beta_s_per_byte[link])
    longest_s = 0.0
    for part in parts:
        step_s = {
            link: float(network.alpha_s[link])
            + part.choice.chunk_bytes * max(busy[at] for at in network.resources_of(link))
            for path in part.paths.values()
            for link in path
        }
        ready_s = _ready_s(question, part, step_s)
        for flow, path in part.paths.items():
            hops = [flow[0], *(int(network.dst[link]) for link in path)]
            waits = [ready_s[flow, b] - ready_s[flow, a] for a, b in pairwise(hops)]
            longest_s = max(longest_s, ready_s[flow, hops[-1]] + part.choice.chunks * max(waits, default=0.0))
    return longest_s


def _loads(question: Question, part: SubCollective) -> dict[int, int]:
    """Return N, the number of flows, of each link in use."""
    network = question.network
    if question.kind == "reduce":
        above = {flow[0]: path[0] for flow, path in part.paths.items() if path}
        into: dict[int, list[int]] = defaultdict(list)
        for link in above.values():
            into[int(network.dst[link])].append(link)

        def load(link: int) -> int:
            rank = int(network.src[link])
            return 1 if rank in part.aggregates else 1 + sum(load(one) for one in into[rank])

        return {link: load(link) for link in above.values()}
    found: dict[int, int] = defaultdict(int)
    for path in part.paths.values():
        for link in path:
            found[link] = 1 if question.kind == "broadcast" else found[link] + 1
    return found


def _ready_s(
    question: Question, part: SubCollective, step_s: Mapping[int, float]
) -> dict[tuple[Flow, int], float]:
    """Return the times (equation 2) at which each flow's chunk is ready at ranks on its path."""
    network = question.network
    ready_s: dict[tuple[Flow, int], float] = {}

    def at(flow: Flow, hop: int) -> float:
        rank = flow[0] if not hop else int(network.dst[part.paths[flow][hop - 1]])
        if (flow, rank) not in ready_s:
            arrived_s = 0.0 if not hop else at(flow, hop - 1) + step_s[part.paths[flow][hop - 1]]
            if rank in part.aggregates:
                arrivals = [
                    at(other, place) + step_s[link]
                    for other, path in part.paths.items()
                    for place, link in enumerate(path)
                    if int(network.dst[link]) == rank
                ]
                arrived_s = max(arrivals) + question.kernel_s if arrivals else arrived_s
            ready_s[flow, rank] = arrived_s
        return ready_s[flow, rank]

    for flow, path in part.paths.items():
        for hop in range(len(path) + 1):
            at(flow, hop)
    return ready_s


@dataclass(eq=False)
class _Part:
    """The columns of one sub-collective; columns of flows are by flow, then by link or rank."""

    choice: list[int]
    root: list[int]
    used: list[int]
    load: list[int]
    step: list[int]
    aggregates: list[int]
    routed: list[list[int]] = field(default_factory=list)
    ready: list[list[int]] = field(default_factory=list)


class _Program:
    """The integer program; times are in units of ``unit_s``, about the slowest link's time for all bytes."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.network = question.network
        self.model = IntegerProgram()
        self.flows = question.flows()
        self.links = range(self.network.links)
        self.ranks = range(self.network.ranks)
        beta = self.network.beta_s_per_byte
        self.unit_s = float(beta.max()) * question.size_bytes
        self.most_load = len(self.flows)
        chunk_bytes = max(choice.chunk_bytes for choice in question.choices)
        shared = float(beta.sum()) * self.most_load * question.sub_collectives
        self.most_step = (float(self.network.alpha_s.max()) + chunk_bytes * shared) / self.unit_s
        self.most_ready = self.network.ranks * (self.most_step + question.kernel_s / self.unit_s)
        most_chunks = max(choice.chunks for choice in question.choices)
        self.time = self.model.number(0.0, (1 + most_chunks) * self.most_ready)
        self.model.cost[self.time] = 1.0
        self.parts = [self._columns() for _ in range(question.sub_collectives)]
        self._divide()
        for part in self.parts:
            self._conserve(part)
            self._count(part)
        for part in self.parts:
            self._share(part)
            self._wait(part)
            self._finish(part)

    def _columns(self) -> _Part:
        model, summing = self.model, self.question.kind == "reduce"
        part = _Part(
            [model.binary() for _ in self.question.choices],
            [model.binary() for _ in self.ranks],
            [model.binary() for _ in self.links],
            [model.number(0.0, self.most_load) for _ in self.links],
            [model.number(0.0, self.most_step) for _ in self.links],
            [model.binary() if summing else model.number(0.0, 0.0) for _ in self.ranks],
        )
        for _ in self.flows:
            part.routed.append([model.binary() for _ in self.links])
            part.ready.append([model.number(0.0, self.most_ready) for _ in self.ranks])
        return part

    def _divide(self) -> None:
        """Add one choice for each part; sizes sum to the tensor, and an order breaks symmetry."""
        sizes, total = [], float(self.question.size_bytes)
        for part in self.parts:
            self.model.row(part.choice, [1.0] * len(part.choice), 1.0, 1.0)
            sizes += [
                (column, choice.size_bytes / total)
                for column, choice in zip(part.choice, self.question.choices, strict=True)
            ]
        columns, coefficients = zip(*sizes, strict=True)
        self.model.row(columns, coefficients, 1.0, 1.0)
        places = [float(at) for at in range(len(self.question.choices))]
        for a, b in pairwise(self.parts):
            self.model.row([*b.choice, *a.choice], [*places, *(-place for place in places)], low=0.0)

    def _into(self, rank: int) -> list[int]:
        return [link for link in self.links if int(self.network.dst[link]) == rank]

    def _out(self, rank: int) -> list[int]:
        return [link for link in self.links if int(self.network.src[link]) == rank]

    def _conserve(self, part: _Part) -> None:
        """Add equation 1; in a reduce, each rank but the root uses exactly one outgoing link."""
        model, given = self.model, self.question.root
        if self.question.kind == "all_to_all":
            given = 0
        if given is not None:
            model.low[part.root[given]] = 1.0
        model.row(part.root, [1.0] * len(part.root), 1.0, 1.0)
        for (source, target), routed in zip(self.flows, part.routed, strict=True):
            for link in self.links:
                model.row([routed[link], part.used[link]], [1.0, -1.0], high=0.0)
            for rank in self.ranks:
                out, into = self._out(rank), self._into(rank)
                columns = [routed[link] for link in (*out, *into)]
                signs = [1.0] * len(out) + [-1.0] * len(into)
                more = float(rank == source) - float(rank == target)
                if target < 0:
                    columns, signs = [*columns, part.root[rank]], [*signs, 1.0]
                model.row(columns, signs, more, more)
                # A flow visits no rank twice, so that its time there is unique.
                model.row([routed[link] for link in into], [1.0] * len(into), high=float(rank != source))
        for link in self.links:
            flows = [routed[link] for routed in part.routed]
            model.row([part.used[link], *flows], [1.0, *[-1.0] * len(flows)], high=0.0)
        if self.question.kind == "reduce":
            for rank in self.ranks:
                out = [part.used[link] for link in self._out(rank)]
                model.row([*out, part.root[rank]], [1.0] * (len(out) + 1), 1.0, 1.0)

    def _count(self, part: _Part) -> None:
        """Add N of every link, exactly."""
        model, most = self.model, float(self.most_load)
        for link in self.links:
            load, used = part.load[link], part.used[link]
            if self.question.kind == "broadcast":
                model.row([load, used], [1.0, -1.0], 0.0, 0.0)
            elif self.question.kind == "all_to_all":
                flows = [routed[link] for routed in part.routed]
                model.row([load, *flows], [1.0, *[-1.0] * len(flows)], 0.0, 0.0)
            else:
                rank = int(self.network.src[link])
                into = [part.load[one] for one in self._into(rank)]
                sums, signs = [load, *into], [1.0, *[-1.0] * len(into)]
                a = part.aggregates[rank]
                model.row([load, used], [1.0, -1.0], low=0.0)
                model.row([load, used], [1.0, -most], high=0.0)
                model.row([load, a], [1.0, most], high=1.0 + most)
                model.row([*sums, used, a], [*signs, -most, most], low=1.0 - most)
                model.row(sums, signs, high=1.0)

    def _share(self, part: _Part) -> None:
        """Add equation 3, exactly: a chunk takes alpha plus its time on the busiest resource."""
        model, most = self.model, 2 * self.most_step
        beta, alpha_s = self.network.beta_s_per_byte, self.network.alpha_s
        users: dict[int, list[int]] = defaultdict(list)
        for link in self.links:
            for resource in self.network.resources_of(link):
                users[resource].append(link)
        for link in self.links:
            resources = list(self.network.resources_of(link))
            busiest = [model.binary() for _ in resources]
            model.row(busiest, [1.0] * len(busiest), 1.0, 1.0)
            for (at, resource), (chosen, choice) in product(
                enumerate(resources), zip(part.choice, self.question.choices, strict=True)
            ):
                loads = [other.load[one] for other in self.parts for one in users[resource]]
                costs = [
                    -choice.chunk_bytes * float(beta[one]) / self.unit_s
                    for _ in self.parts
                    for one in users[resource]
                ]
                alpha = float(alpha_s[link]) / self.unit_s
                model.row([part.step[link], *loads, chosen], [1.0, *costs, -most], low=alpha - most)
                model.row(
                    [part.step[link], *loads, chosen, busiest[at]],
                    [1.0, *costs, most, most],
                    high=alpha + 2 * most,
                )

    def _wait(self, part: _Part) -> None:
        """Add equation 2, exactly: the time at which a chunk of each flow is ready at each rank."""
        model, most = self.model, 2 * self.most_ready
        together = [model.number(0.0, self.most_ready) for _ in self.ranks]
        last: dict[int, list[int]] = {rank: [] for rank in self.ranks}
        kernel = self.question.kernel_s / self.unit_s
        for number, (source, _) in enumerate(self.flows):
            routed, ready = part.routed[number], part.ready[number]
            for rank in self.ranks:
                into, a = self._into(rank), part.aggregates[rank]
                passed = [routed[link] for link in into]
                for link in into:
                    before, step = ready[int(self.network.src[link])], part.step[link]
                    x = routed[link]
                    model.row([ready[rank], before, step, x], [1.0, -1.0, -1.0, -most], low=-most)
                    model.row([ready[rank], before, step, x, a], [1.0, -1.0, -1.0, most, -most], high=most)
                    model.row([together[rank], before, step, x], [1.0, -1.0, -1.0, -most], low=kernel - most)
                    chosen = model.binary()
                    last[rank].append(chosen)
                    model.row([chosen, x], [1.0, -1.0], high=0.0)
                    model.row(
                        [together[rank], before, step, chosen], [1.0, -1.0, -1.0, most], high=kernel + most
                    )
                mine = float(rank == source)
                # If the rank aggregates, the flow is ready together with all other flows here. Otherwise it
                # is ready at time 0 at its source. Off its path its time is 0.
                model.row(
                    [ready[rank], together[rank], a, *passed],
                    [1.0, -1.0, -most, *[-most] * len(passed)],
                    low=-2 * most + mine * most,
                )
                model.row([ready[rank], together[rank], a], [1.0, -1.0, most], high=most)
                if rank == source:
                    model.row([ready[rank], a], [1.0, -most], high=0.0)
                else:
                    model.row([ready[rank], *passed], [1.0, *[-most] * len(passed)], high=0.0)
        for rank in self.ranks:
            # A rank that aggregates has a last arrival; so a rank without arrivals does not aggregate.
            model.row([*last[rank], part.aggregates[rank]], [*[1.0] * len(last[rank]), -1.0], low=0.0)

    def _finish(self, part: _Part) -> None:
        """Add equations 4 to 6."""
        model, most = self.model, 2 * self.most_ready
        for routed, ready in zip(part.routed, part.ready, strict=True):
            bottle = model.number(0.0, self.most_ready)
            for link in self.links:
                a, b = ready[int(self.network.src[link])], ready[int(self.network.dst[link])]
                model.row([bottle, b, a, routed[link]], [1.0, -1.0, 1.0, -most], low=-most)
            for rank, (chosen, choice) in product(
                self.ranks, zip(part.choice, self.question.choices, strict=True)
            ):
                far = float(1 + choice.chunks) * self.most_ready
                model.row(
                    [self.time, ready[rank], bottle, chosen],
                    [1.0, -1.0, -float(choice.chunks), -far],
                    low=-far,
                )

    def decided(self, values: Floats) -> tuple[SubCollective, ...]:
        return tuple(self._part_of(part, values) for part in self.parts)

    def _part_of(self, part: _Part, values: Floats) -> SubCollective:
        choice = self.question.choices[int(values[part.choice].argmax())]
        root = int(values[part.root].argmax())
        paths = {}
        for (source, target), routed in zip(self.flows, part.routed, strict=True):
            onward = {int(self.network.src[link]): link for link in self.links if values[routed[link]] > 0.5}
            path, rank = [], source
            while rank != (root if target < 0 else target):
                path.append(onward[rank])
                rank = int(self.network.dst[path[-1]])
            paths[source, rank] = tuple(path)
        aggregates = frozenset(rank for rank in self.ranks if values[part.aggregates[rank]] > 0.5)
        return SubCollective(choice, paths, aggregates, None if self.question.kind == "all_to_all" else root)


def solve(
    question: Question, *, solver: str = "cbc", time_limit_s: float = 60.0, seed: int = 0
) -> PublishedStrategy:
    """Return the strategy of least time; raise NotApplicableError if none is found in time."""
    if question.kind == "broadcast" and question.root is None:
        raise NotApplicableError("adapcc: a broadcast needs its root")
    program = _Program(question)
    solution = program.model.solve(solver=solver, time_limit_s=time_limit_s, seed=seed)
    if solution.values is None:
        raise NotApplicableError(
            f"adapcc: {question.network.name}: no strategy was found in {time_limit_s:.3g} s"
        )
    parts = program.decided(solution.values)
    time_s = timed(question, parts)
    return PublishedStrategy(
        question, parts, time_s, min(time_s, solution.bound * program.unit_s), solution.status
    )
