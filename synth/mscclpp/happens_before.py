"""The happens-before relation of a plan: which events precede which in every run.

A run of the plan makes a graph of events. An event follows other events, and sees their data unless it
follows them by relaxed signals or packets only. Threads of a block meet at a ``nop`` and nowhere else, so all
accesses to data between two nops of a block become known together and are one event. The k-th wait at an end
of a channel follows the k-th signal of the other end; a semaphore's k-th acquire follows its k-th release.
This holds only if the signals of each channel end, and its waits, have a fixed order; that is checked during
the run. If only the signals are unordered, the last wait of a launch still follows all of them. Racing waits
of one counter are a finding. In a plan without such races, one run shows whether the plan can deadlock.

Between launches a rank's caller reads the output and writes the input. This turn of the caller is an event of
its own on each rank, so an access to the buffers of a rank that has not begun or has ended races with it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from probes.base import Mask
from synth.mscclpp.elements import End, PlanElement, opposite_end, unfold
from synth.mscclpp.event_graph import EventGraph, weakly
from synth.mscclpp.memory import PlanMemory
from synth.mscclpp.plan import ExecutionPlan

__all__ = ["Access", "ExecutionOrder", "history"]

# A plan whose waits race mostly does so in many places; the first ones show it.
_ENOUGH_RACES = 5


@dataclass(slots=True, eq=False)
class Access:
    """An element that accessed data (None: the caller's turn before a launch), as part of an event."""

    event: int
    rank: int
    launch: int
    element: PlanElement | None
    proxy: bool = False

    @property
    def where(self) -> str:
        """The position in the file, for messages."""
        if self.element is None:
            return f"the caller of rank {self.rank}"
        return f"{self.element.where}{' by the proxy' if self.proxy else ''}"


@dataclass(slots=True)
class ExecutionOrder:
    """The outcome of a run: findings if there is no order of the events, or if it may vary.

    ``accesses`` are in an order in which they can run. ``unfinished`` are the puts of proxies, each with the
    event in which all threadblocks of its rank have ended. ``balance`` has the counters that a launch does
    not count up as often as down, with both numbers.
    """

    findings: list[str]
    graph: EventGraph
    accesses: list[Access] = field(default_factory=list)
    unfinished: list[tuple[int, int]] = field(default_factory=list)
    balance: dict[str, tuple[int, int]] = field(default_factory=dict)


_Counter = End | tuple[int, int]


@dataclass(slots=True)
class _Counts:
    """The ups (signals or releases) and downs (waits or acquires) of a counter so far.

    It begins at ``initial``. ``waiting`` are the ups, with their launches, that no down has needed yet;
    ``head`` is an event that follows the first ``joined`` ups. Relaxed ups are followed weakly. ``chance`` is
    set if an up does not follow the up before it, so that their order may vary.
    """

    initial: int = 0
    ups: int = 0
    downs: int = 0
    waiting: deque[tuple[int, int]] = field(default_factory=deque)
    joined: int = 0
    head: int | None = None
    chance: bool = False
    last_up: int = -1
    last_down: Access | None = None

    def count_up(self, graph: EventGraph, event: int, relaxed: bool, launch: int) -> None:
        if self.last_up >= 0 and not self.chance:
            self.chance = not graph.precedes(self.last_up, event)
        self.ups, self.last_up = self.ups + 1, event
        self.waiting.append((weakly(event) if relaxed else event, launch))

    @property
    def needed(self) -> int:
        """The ups that the next down needs."""
        return self.downs + 1 - self.initial

    def join(self, graph: EventGraph, need: int) -> None:
        """Let the head follow the first ``need`` ups."""
        while self.joined < need:
            self._take(graph, self.waiting.popleft()[0])

    def join_launches(self, graph: EventGraph, launches: int) -> None:
        """Let the head follow all ups of the first ``launches`` launches."""
        for _ in range(len(self.waiting)):
            up, launch = self.waiting.popleft()
            if launch < launches:
                self._take(graph, up)
            else:
                self.waiting.append((up, launch))

    def _take(self, graph: EventGraph, up: int) -> None:
        self.joined += 1
        head = self.head
        if head is None or (up >= 0 and graph.surely(max(head, ~head), up)):
            self.head = up
        else:
            self.head = graph.add((head, up))


def history(plan: ExecutionPlan, memory: PlanMemory, atoms: Mask, launches: int) -> ExecutionOrder:
    """Run ``launches`` launches of a plan; O(elements + pairs of events whose order is in doubt)."""
    by_chance: set[_Counter] = set()
    while True:
        run = _Run(plan, memory, atoms, launches, by_chance)
        found = run.history()
        doubtful = run.unordered_ups() - by_chance
        if found.findings or not doubtful:
            found.findings += [] if found.findings else run.races
            return found
        by_chance |= doubtful


@dataclass(slots=True)
class _Put:
    """A put that a channel's proxy has taken over, or a signal over a port.

    ``issued`` is the event that handed it over, ``done`` its end. ``last`` is set if it follows all earlier
    entries of the channel's queue.
    """

    issued: int
    done: int
    last: bool


class _Run:
    def __init__(
        self, plan: ExecutionPlan, memory: PlanMemory, atoms: Mask, launches: int, by_chance: set[_Counter]
    ) -> None:
        self.plan, self.memory, self.launches, self.by_chance = plan, memory, launches, by_chance
        self.atoms, self.graph = atoms, EventGraph()
        self.order = ExecutionOrder([], self.graph)
        self.counts: dict[_Counter, _Counts] = {}
        self.initial: dict[_Counter, int] = {
            (rank, at): value for rank, gpu in enumerate(plan.gpus) for at, value in enumerate(gpu.semaphores)
        }
        self.unfolded: dict[tuple[int, int], list[PlanElement]] = {}
        self.packets: dict[tuple[int, int], Access] = {}
        self.ports: dict[End, list[_Put]] = {}
        self.sleeping: dict[object, list[_Block]] = {}
        self.ready: deque[_Block] = deque()
        self.done: list[list[_Block]] = [[] for _ in plan.gpus]
        self.meeting: dict[tuple[int, int], list[_Block]] = {}
        self.per_launch, self.downs = Counter[_Counter](), Counter[_Counter]()
        self.proxied: dict[int, list[int]] = {}
        self.proxies: list[int] = [0] * plan.ranks
        self.races: list[str] = []

    def history(self) -> ExecutionOrder:
        for rank in range(self.plan.ranks):
            self.turn(rank, 0, ())
        while self.ready:
            self.ready.popleft().go()
        stuck = [block for blocks in self.sleeping.values() for block in blocks]
        stuck += [block for blocks in self.meeting.values() for block in blocks]
        places = {block.element.where for block in stuck}
        self.order.findings += [f"{place} waits for ever" for place in sorted(places)]
        for key in dict.fromkeys((*self.per_launch, *self.downs)):
            counts = self.per_launch[key], self.downs[key]
            if counts[0] != counts[1]:
                self.order.balance[_named(key)] = counts
        # Blocks refer to this run; without this circle, its objects go as soon as nothing else needs them.
        self.done.clear()
        return self.order

    def access(self, event: int, rank: int, launch: int, element: PlanElement | None) -> Access:
        made = Access(event, rank, launch, element)
        self.order.accesses.append(made)
        return made

    def turn(self, rank: int, launch: int, follows: tuple[int, ...]) -> None:
        """Add the caller's turn before a launch, then make the launch's blocks ready."""
        graph = self.graph
        event = graph.add(follows, graph.new_place(rank, 2 * launch))
        self.access(event, rank, launch, None)
        if launch == self.launches:
            return
        blocks = self.plan.gpus[rank].threadblocks
        self.done[rank] = []
        self.proxies[rank] = graph.new_place(rank, 2 * launch + 1)
        for at in range(len(blocks)):
            self.ready.append(_Block(self, rank, launch, self.elements(rank, at, launch), event))
        if not blocks:
            self.turn(rank, launch + 1, (event,))

    def elements(self, rank: int, at: int, launch: int) -> list[PlanElement]:
        """Return the elements of a block; launches differ only in the half of scratch that they use."""
        key = (rank, at)
        if launch and not self.plan.double_scratch:
            return self.unfolded[key]
        found = self.unfolded[key] = unfold(self.plan, self.memory, self.atoms, rank, at, launch)
        for element in found if launch == 0 else ():
            if (up := _up(element)) is not None:
                self.per_launch[up] += 1
            if element.kind in ("wait", "acquire"):
                self.downs[_down(element)] += 1
        return found

    def ended(self, block: _Block) -> None:
        rank = block.rank
        block.meet()
        self.done[rank].append(block)
        if len(self.done[rank]) < len(self.plan.gpus[rank].threadblocks):
            return
        end = self.graph.add(tuple(one.base for one in self.done[rank]))
        # The library has no way to wait for the proxy. Puts that the proxy may still work on when the blocks
        # end become a caution.
        puts = self.proxied.pop(rank, [])
        self.order.unfinished += [(put, end) for put in puts]
        self.turn(rank, block.launch + 1, (end, *puts))

    def counter(self, key: _Counter) -> _Counts:
        found = self.counts.get(key)
        if found is None:
            found = self.counts[key] = _Counts(self.initial.get(key, 0))
        return found

    def count_up(self, key: _Counter, event: int, relaxed: bool, launch: int) -> None:
        self.counter(key).count_up(self.graph, event, relaxed, launch)
        self.ready.extend(self.sleeping.pop(key, ()))

    def counted_up(self, key: _Counter, relaxed: bool) -> tuple[int, ...]:
        """Return an event that follows the ups which surely precede the end of the next wait; () if none do.

        These are the first ups, as many as the wait needs. If the order of ups may vary, only the ups of
        whole launches count.
        """
        counts = self.counter(key)
        need = max(counts.needed, 0)
        if key in self.by_chance:
            counts.join_launches(self.graph, need // max(self.per_launch.get(key, 1), 1))
        else:
            counts.join(self.graph, need)
        if counts.head is None:
            return ()
        return (weakly(counts.head) if relaxed and counts.head >= 0 else counts.head,)

    def count_down(self, key: _Counter, event: Access) -> None:
        counts = self.counter(key)
        last = counts.last_down
        counts.downs, counts.last_down = counts.downs + 1, event
        if last is None or len(self.races) == _ENOUGH_RACES:
            return
        if not self.graph.precedes(last.event, event.event):
            self.races.append(f"{event.where} and {last.where}: which of them waits first is left to chance")

    def unordered_ups(self) -> set[_Counter]:
        return {key for key, counts in self.counts.items() if counts.chance}


def _up(element: PlanElement) -> _Counter | None:
    """Return the counter that an element counts up, or None."""
    if element.kind == "signal" or element.signals:
        assert element.end is not None
        return element.end
    return (element.rank, element.counter) if element.kind == "release" else None


def _down(element: PlanElement) -> _Counter:
    """Return the counter that a wait or an acquire counts down."""
    if element.kind == "acquire":
        return (element.rank, element.counter)
    assert element.end is not None
    return opposite_end(element.end)


def _named(key: _Counter) -> str:
    if len(key) == 2:
        return f"gpus[{key[0]}].semaphores[{key[1]}]"
    rank, kind, peer, number = key
    return f"{kind} channel {number} from rank {rank} to rank {peer}"


class _Block:
    """A threadblock in one launch.

    All of its events up to its last nop precede ``base``. ``threads`` has the last event of each thread since
    then, and ``others`` the events since then that belong to no thread. ``phase`` is the event that stands
    for plain accesses (or -1).
    """

    def __init__(self, run: _Run, rank: int, launch: int, elements: list[PlanElement], base: int) -> None:
        self.run, self.rank, self.launch, self.elements = run, rank, launch, elements
        self.at, self.place = 0, run.graph.new_place(rank, 2 * launch + 1)
        self.base, self.phase = base, -1
        self.threads: dict[int, int] = {}
        self.others: list[int] = []

    @property
    def element(self) -> PlanElement:
        return self.elements[self.at]

    def go(self) -> None:
        """Run until an element must wait, or until the block ends."""
        elements = self.elements
        while self.at < len(elements):
            element = elements[self.at]
            if element.kind == "nop":
                self.meet()
            elif element.kind == "barrier":
                if not self.barrier(element):
                    return
            elif (key := self.waits_for(element)) is not None:
                self.run.sleeping.setdefault(key, []).append(self)
                return
            else:
                self.step(element)
            self.at += 1
        self.run.ended(self)

    def meet(self) -> None:
        heads = [*self.threads.values(), *self.others]
        if self.phase >= 0:
            heads.append(self.phase)
        if heads:
            self.base = heads[0] if len(heads) == 1 else self.run.graph.add(heads, self.place)
        self.phase = -1
        self.threads.clear()
        self.others.clear()

    def barrier(self, element: PlanElement) -> bool:
        """Meet with the other blocks; return whether all of them have arrived."""
        run, key = self.run, (self.rank, element.counter)
        arrived = run.meeting.setdefault(key, [])
        self.meet()
        arrived.append(self)
        users = sum(
            any(
                one.name == "barrier" and one.barrier == element.counter
                for outer in block.operations
                for one in (outer, *outer.inner)
            )
            for block in run.plan.gpus[self.rank].threadblocks
        )
        if len(arrived) < users:
            return False
        del run.meeting[key]
        base = run.graph.add([block.base for block in arrived])
        for block in arrived:
            block.base = base
            if block is not self:
                block.at += 1
                run.ready.append(block)
        return True

    def waits_for(self, element: PlanElement) -> object:
        """Return the key that an element must wait for, or None."""
        run = self.run
        if element.kind in ("wait", "acquire"):
            key = _down(element)
            counts = run.counter(key)
            return key if counts.ups < counts.needed else None
        for cell in element.awaited:
            if (cell, self.launch) not in run.packets:
                return ("packet", cell, self.launch)
        return None

    def step(self, element: PlanElement) -> None:
        run, thread = self.run, element.thread
        if element.kind == "data":
            self.data(element)
            return
        last = self.threads.get(thread, self.base)
        if element.kind in ("wait", "acquire"):
            key = _down(element)
            event = self.event((last, *run.counted_up(key, element.relaxed)), thread)
            run.count_down(key, Access(event, self.rank, self.launch, element))
        else:
            follows = [last]
            event = self.event(follows, thread)
            if element.kind == "post":
                event = self.post(element, event)
            elif element.kind == "release":
                run.count_up((self.rank, element.counter), event, False, self.launch)
            else:
                assert element.end is not None
                if element.end[1] == "port":
                    # A signal over a port waits in the channel's queue, too.
                    follows += self.queue(element.end, event, event)
                run.count_up(element.end, event, element.relaxed, self.launch)
        self.threads[thread] = event

    def event(self, follows: Sequence[int], thread: int = -1) -> int:
        return self.run.graph.add(follows, self.place, self.base, thread)

    def data(self, element: PlanElement) -> None:
        run = self.run
        if not element.awaited and not element.packed:
            if self.phase < 0:
                self.phase = self.event((self.base,))
            run.access(self.phase, self.rank, self.launch, element)
            return
        writers = {run.packets[cell, self.launch].event for cell in element.awaited}
        event = self.event((self.base, *map(weakly, sorted(writers))))
        self.others.append(event)
        self.send_packets(element, run.access(event, self.rank, self.launch, element))

    def post(self, element: PlanElement, event: int) -> int:
        """Add the end of a put by the proxy, after earlier puts; return the last event of the block."""
        run, graph = self.run, self.run.graph
        assert element.end is not None
        follows = [event]
        done = graph.add(follows, run.proxies[self.rank])
        follows += self.queue(element.end, event, done)
        run.proxied.setdefault(self.rank, []).append(done)
        access = run.access(done, self.rank, self.launch, element)
        access.proxy = True
        self.send_packets(element, access)
        if element.signals:
            run.count_up(element.end, done, False, self.launch)
        return self.event((event, done), element.thread) if element.flushes else event

    def queue(self, end: End, issued: int, done: int) -> list[int]:
        """Enter an event in the queue of a channel; return the earlier events that it surely follows."""
        graph, queue = self.run.graph, self.run.ports.setdefault(end, [])
        found, every = [], True
        for put in reversed(queue):
            if not graph.precedes(put.issued, issued):
                every = False
                continue
            found.append(put.done)
            if put.last:
                break
        queue.append(_Put(issued, done, every))
        return found

    def send_packets(self, element: PlanElement, access: Access) -> None:
        run = self.run
        for cell in element.packed:
            key = (cell, self.launch)
            if key in run.packets:
                run.order.findings.append(
                    f"{access.where}: a second packet at {run.memory.name(cell)}, the first is of "
                    f"{run.packets[key].where}: a wait for one of them cannot tell them apart"
                )
                continue
            run.packets[key] = access
            run.ready.extend(run.sleeping.pop(("packet", cell, self.launch), ()))
