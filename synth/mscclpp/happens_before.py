"""The happens-before relation of a plan: which events precede which in every run.

Each event has two sets of events, kept as bits: those that always happen before it, and those of them whose
data it is sure to see. A relaxed signal adds to the first set only. Threads of a block meet at a ``nop`` and
nowhere else, so all events on data between two nops of a block become known together and share a bit. The
k-th wait at an end of a channel follows the k-th signal of the other end; a semaphore's k-th acquire follows
its k-th release. This holds only if the signals of each channel end, and its waits, have a fixed order; that
is checked after the run. If only the signals are unordered, the last wait of a launch still follows all of
them. Waits of one counter that race are a finding: in a plan without one, one run decides about deadlock.

Between launches a rank's caller reads the output and writes the input. That is an event of its own on each
rank, so an access to the buffers of a rank that has not begun or has ended races with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from probes.base import Mask
from synth.mscclpp.elements import End, PlanElement, other, unfold
from synth.mscclpp.memory import PlanMemory
from synth.mscclpp.plan import ExecutionPlan

__all__ = ["ExecutedElement", "ExecutionOrder", "history"]

# A plan whose waits race mostly does so in many places; the first ones show it.
_ENOUGH_RACES = 5


@dataclass(slots=True, eq=False)
class ExecutedElement:
    """An element that ran (None: the caller's turn between launches), and the events before it, as bits.

    The bits are there while the event is watched, and later only if other events may still follow from it.
    """

    number: int
    rank: int
    launch: int
    element: PlanElement | None
    before: int
    seen: int
    proxy: bool = False

    @property
    def bit(self) -> int:
        return 1 << self.number

    @property
    def where(self) -> str:
        if self.element is None:
            return f"the caller of rank {self.rank}"
        return f"{self.element.where}{' by the proxy' if self.proxy else ''}"


@dataclass(slots=True)
class ExecutionOrder:
    """The outcome of a run: findings if there is no order of the events, or if it may vary."""

    findings: list[str]
    unfinished_puts: int = 0


_Counter = End | tuple[int, int]
_Watch = Callable[[ExecutedElement], None]
"""Called with each event, in an order that the events can run in."""


@dataclass(slots=True)
class _Counts:
    """The ups and downs of a counter so far.

    ``waiting`` are the ups that no down has needed yet; ``before`` and ``seen`` join the bits of the
    ``joined`` ones before them. ``chance`` is set if an up does not follow the one before. ``last_up`` is
    the number of the last up, and ``last_down`` number and element of the last down.
    """

    ups: int = 0
    downs: int = 0
    waiting: deque[ExecutedElement] = field(default_factory=deque)
    joined: int = 0
    before: int = 0
    seen: int = 0
    chance: bool = False
    last_up: int = -1
    last_down: tuple[int, PlanElement | None] = (-1, None)

    def count_up(self, event: ExecutedElement) -> None:
        self.chance |= self.last_up >= 0 and not event.before >> self.last_up & 1
        self.ups, self.last_up = self.ups + 1, event.number
        self.waiting.append(event)

    def join(self, need: int) -> tuple[int, int]:
        """Return the bits of the first ``need`` ups, joined."""
        while self.joined < need:
            self._take(self.waiting.popleft())
        return self.before, self.seen

    def join_launches(self, launches: int) -> tuple[int, int]:
        """Return the bits of all ups of the first ``launches`` launches, joined."""
        for _ in range(len(self.waiting)):
            up = self.waiting.popleft()
            if up.launch < launches:
                self._take(up)
            else:
                self.waiting.append(up)
        return self.before, self.seen

    def _take(self, up: ExecutedElement) -> None:
        self.joined += 1
        self.before |= up.before | up.bit
        if up.element is None or not up.element.relaxed:
            self.seen |= up.seen | up.bit


@dataclass(slots=True)
class _Thread:
    before: int = 0
    seen: int = 0


def history(
    plan: ExecutionPlan, memory: PlanMemory, atoms: Mask, launches: int, watching: Callable[[], _Watch]
) -> ExecutionOrder:
    """Run ``launches`` launches of a plan; O(events · bits that differ), with O(threadblocks · events) bits.

    ``watching`` is called at the start of each run and returns what watches its events. Only the last run
    counts.
    """
    by_chance: set[_Counter] = set()
    while True:
        run = _Run(plan, memory, atoms, launches, by_chance, watching())
        found = run.history()
        doubtful = run.unordered_ups() - by_chance
        if found.findings or not doubtful:
            if not found.findings:
                found.findings += run.races[:_ENOUGH_RACES]
            return found
        by_chance |= doubtful


class _Run:
    def __init__(
        self,
        plan: ExecutionPlan,
        memory: PlanMemory,
        atoms: Mask,
        launches: int,
        by_chance: set[_Counter],
        watch: _Watch,
    ) -> None:
        self.plan, self.memory, self.launches, self.by_chance = plan, memory, launches, by_chance
        self.atoms, self.watch, self.numbers = atoms, watch, 0
        self.counts: dict[_Counter, _Counts] = {}
        self.initial: dict[_Counter, int] = {
            (rank, at): value for rank, gpu in enumerate(plan.gpus) for at, value in enumerate(gpu.semaphores)
        }
        self.packets: dict[tuple[int, int], ExecutedElement] = {}
        self.ports: dict[End, list[tuple[int, ExecutedElement]]] = {}
        self.sleeping: dict[object, list[_Block]] = {}
        self.ready: deque[_Block] = deque()
        self.left = [0] * plan.ranks
        self.done: list[list[_Block]] = [[] for _ in plan.gpus]
        self.meeting: dict[tuple[int, int], list[_Block]] = {}
        self.per_launch: dict[_Counter, int] = {}
        self.proxied: dict[int, list[ExecutedElement]] = {}
        self.unfinished_puts = 0
        self.findings: list[str] = []
        self.races: list[str] = []

    def history(self) -> ExecutionOrder:
        for rank in range(self.plan.ranks):
            self.turn(rank, 0, 0, 0)
        while self.ready:
            self.ready.popleft().go()
        stuck = [block for blocks in self.sleeping.values() for block in blocks]
        stuck += [block for blocks in self.meeting.values() for block in blocks]
        told = {block.element.where for block in stuck}
        self.findings += [f"{place} waits for ever" for place in sorted(told)]
        return ExecutionOrder(self.findings, self.unfinished_puts)

    def event(
        self, rank: int, launch: int, element: PlanElement | None, before: int, seen: int
    ) -> ExecutedElement:
        return ExecutedElement(self.next_number(), rank, launch, element, before, seen)

    def next_number(self) -> int:
        self.numbers += 1
        return self.numbers - 1

    def turn(self, rank: int, launch: int, before: int, seen: int) -> None:
        """Add the caller's turn before a launch, then make the launch's blocks ready."""
        event = self.event(rank, launch, None, before, seen)
        self.watch(event)
        before, seen = before | event.bit, seen | event.bit
        # The watch may keep the event, whose bits would fill the memory.
        event.before = event.seen = 0
        if launch == self.launches:
            return
        blocks = self.plan.gpus[rank].threadblocks
        self.left[rank] = len(blocks)
        self.done[rank] = []
        for at in range(len(blocks)):
            elements = unfold(self.plan, self.memory, self.atoms, rank, at, launch)
            for element in elements:
                if (counter := _up(element)) is not None and launch == 0:
                    self.per_launch[counter] = self.per_launch.get(counter, 0) + 1
            self.ready.append(_Block(self, rank, launch, elements, before, seen))
        if not blocks:
            self.turn(rank, launch + 1, before, seen)

    def ended(self, block: _Block) -> None:
        rank = block.rank
        self.left[rank] -= 1
        self.done[rank].append(block)
        if self.left[rank]:
            return
        before = seen = 0
        for one in self.done[rank]:
            before |= one.before | one.phase_before
            seen |= one.seen | one.phase_seen
        # The library has no way to wait for the proxy. Puts that it may still work on when the blocks end
        # become a caution.
        for event in self.proxied.pop(rank, ()):
            self.unfinished_puts += not before >> event.number & 1
            before |= event.before | event.bit
            seen |= event.seen | event.bit
        self.turn(rank, block.launch + 1, before, seen)

    def counter(self, key: _Counter) -> _Counts:
        return self.counts.setdefault(key, _Counts())

    def count_up(self, key: _Counter, event: ExecutedElement) -> None:
        self.counter(key).count_up(event)
        self.wake(key)

    def count_down(self, key: _Counter, event: ExecutedElement, relaxed: bool) -> None:
        """Let an event follow all that surely counted up before a wait that it stands for returns.

        They are the first ones that it needs; if their order may vary, only those of whole launches.
        """
        counts, need = self.counter(key), max(self.needed(key), 0)
        if key in self.by_chance:
            before, seen = counts.join_launches(need // max(self.per_launch.get(key, 1), 1))
        else:
            before, seen = counts.join(need)
        event.before |= before
        if not relaxed:
            event.seen |= seen
        number, last = counts.last_down
        if last is not None and not event.before >> number & 1:
            self.races.append(f"{event.where} and {last.where}: which of them waits first is left to chance")
        counts.downs, counts.last_down = counts.downs + 1, (event.number, event.element)

    def wake(self, key: object) -> None:
        self.ready.extend(self.sleeping.pop(key, ()))

    def needed(self, key: _Counter) -> int:
        """Return how many events must have counted up before the next can count down."""
        return self.counter(key).downs + 1 - self.initial.get(key, 0)

    def unordered_ups(self) -> set[_Counter]:
        return {key for key, counts in self.counts.items() if counts.chance}


def _up(element: PlanElement) -> _Counter | None:
    """Return the counter that an element counts up, or None."""
    if element.kind == "signal" or element.signals:
        assert element.end is not None
        return element.end
    return (element.rank, element.counter) if element.kind == "release" else None


class _Block:
    """A threadblock in one launch; ``before`` has events up to its last nop, ``phase_before`` those since."""

    def __init__(
        self, run: _Run, rank: int, launch: int, elements: list[PlanElement], before: int, seen: int
    ) -> None:
        self.run, self.rank, self.launch, self.elements = run, rank, launch, elements
        self.at = 0
        self.before, self.seen = before, seen
        self.phase_before = self.phase_seen = 0
        self.phase_number = -1
        self.threads: dict[int, _Thread] = {}

    @property
    def element(self) -> PlanElement:
        return self.elements[self.at]

    def go(self) -> None:
        """Run until an element must wait, or until the block ends."""
        while self.at < len(self.elements):
            element = self.element
            if element.kind == "barrier":
                if not self.barrier(element):
                    return
            elif element.kind == "nop":
                self.meet()
            elif (key := self.waits_for(element)) is not None:
                self.run.sleeping.setdefault(key, []).append(self)
                return
            else:
                self.step(element)
            self.at += 1
        self.run.ended(self)

    def meet(self) -> None:
        self.before |= self.phase_before
        self.seen |= self.phase_seen
        self.phase_before = self.phase_seen = 0
        self.phase_number = -1
        self.threads.clear()

    def barrier(self, element: PlanElement) -> bool:
        """Meet with the other blocks; return whether all of them have arrived."""
        run, key = self.run, (self.rank, element.counter)
        there = run.meeting.setdefault(key, [])
        self.meet()
        there.append(self)
        users = sum(
            any(
                one.name == "barrier" and one.barrier == element.counter
                for outer in block.operations
                for one in (outer, *outer.inner)
            )
            for block in run.plan.gpus[self.rank].threadblocks
        )
        if len(there) < users:
            return False
        del run.meeting[key]
        before = seen = 0
        for block in there:
            before |= block.before
            seen |= block.seen
        for block in there:
            block.before, block.seen = before, seen
            if block is not self:
                block.at += 1
                run.ready.append(block)
        return True

    def waits_for(self, element: PlanElement) -> object:
        """Return the key that an element must wait for, or None."""
        run = self.run
        if element.kind in ("wait", "acquire"):
            key = self.down(element)
            return key if run.counter(key).ups < run.needed(key) else None
        for cell in element.awaited:
            if (cell, self.launch) not in run.packets:
                return ("packet", cell, self.launch)
        return None

    def down(self, element: PlanElement) -> _Counter:
        """Return the counter that a wait or an acquire counts down."""
        if element.kind == "acquire":
            return (self.rank, element.counter)
        assert element.end is not None
        return other(element.end)

    def step(self, element: PlanElement) -> None:
        run = self.run
        if element.kind == "data" and not element.packed:
            self.access(element)
            return
        before, seen = self.before, self.seen
        if element.thread >= 0:
            thread = self.threads.setdefault(element.thread, _Thread())
            before |= thread.before
            seen |= thread.seen
        event = run.event(self.rank, self.launch, element, before, seen)
        if element.kind in ("wait", "acquire"):
            run.count_down(self.down(element), event, element.relaxed)
        else:
            self.await_packets(element, event)
            self.effects(element, event)
        run.watch(event)
        known, sees = event.before | event.bit, event.seen | event.bit
        self.phase_before |= known
        self.phase_seen |= sees
        if element.thread >= 0:
            thread = self.threads[element.thread]
            thread.before |= known
            thread.seen |= sees

    def access(self, element: PlanElement) -> None:
        """Run an element on data, whose event shares the bit of all such elements since the last nop."""
        run = self.run
        if self.phase_number < 0:
            self.phase_number = run.next_number()
            self.phase_before |= 1 << self.phase_number
            self.phase_seen |= 1 << self.phase_number
        event = ExecutedElement(self.phase_number, self.rank, self.launch, element, self.before, self.seen)
        if element.awaited:
            self.await_packets(element, event)
            self.phase_before |= event.before
        run.watch(event)
        # The watch may keep the event, whose bits would fill the memory.
        event.before = event.seen = 0

    def await_packets(self, element: PlanElement, event: ExecutedElement) -> None:
        for cell in element.awaited:
            writer = self.run.packets[cell, self.launch]
            event.before |= writer.before | writer.bit

    def effects(self, element: PlanElement, event: ExecutedElement) -> None:
        run = self.run
        if element.kind == "data":
            self.send_packets(element, event)
        elif element.kind == "release":
            run.count_up((self.rank, element.counter), event)
        elif element.kind == "signal":
            assert element.end is not None
            for issued, transfer in run.ports.get(element.end, ()):
                if event.before >> issued & 1:
                    event.before |= transfer.before | transfer.bit
                    event.seen |= transfer.seen | transfer.bit
            if element.end[1] == "port":
                run.ports.setdefault(element.end, []).append((event.number, event))
            run.count_up(element.end, event)
        elif element.kind == "post":
            self.post(element, event)

    def post(self, element: PlanElement, event: ExecutedElement) -> None:
        """Add the proxy's event for a put, after the channel's earlier ones; the block goes on."""
        run = self.run
        assert element.end is not None
        transfer = run.event(
            self.rank, self.launch, element, event.before | event.bit, event.seen | event.bit
        )
        transfer.proxy = True
        queue = run.ports.setdefault(element.end, [])
        for issued, earlier in queue:
            if event.before >> issued & 1:
                transfer.before |= earlier.before | earlier.bit
                transfer.seen |= earlier.seen | earlier.bit
        queue.append((event.number, transfer))
        run.proxied.setdefault(self.rank, []).append(transfer)
        self.send_packets(element, transfer)
        run.watch(transfer)
        if element.flushes:
            event.before |= transfer.before | transfer.bit
            event.seen |= transfer.seen | transfer.bit
        if element.signals:
            run.count_up(element.end, transfer)

    def send_packets(self, element: PlanElement, event: ExecutedElement) -> None:
        run = self.run
        for cell in element.packed:
            key = (cell, self.launch)
            if key in run.packets:
                run.findings.append(
                    f"{event.where}: a second packet at {run.memory.name(cell)}, the first is of "
                    f"{run.packets[key].where}: who waits for one cannot tell them apart"
                )
                continue
            run.packets[key] = event
            run.wake(("packet", cell, self.launch))
