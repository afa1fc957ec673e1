"""The messages of a program, each put straight into its receiver's slot or into scratch first.

In a program a sender waits while the FIFO is full; in an MSCCL++ plan a put never waits. So steps are ordered
only by their order in a block, by waits and by messages, never by full FIFOs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from probes.base import UsageError
from synth.memory_layout import Cells, cells_of
from synth.mscclpp.plan import COLLECTIVES, PARTS
from synth.program import BUFFERS, FIFO_DEPTH, OPS, READS_SRC, SCRATCH, WRITES_DST, Program
from synth.simulation import ThreadblockLinks, links_of, run

__all__ = ["MatchedMessage", "MatchedMessages"]

_S, _R, _RCS = (OPS.index(name) for name in ("s", "r", "rcs"))


@dataclass(frozen=True, slots=True)
class MatchedMessage:
    """A send and its receive, over a port or over memory.

    ``slot`` is the first chunk of its place in the receiver's scratch; -1 if the message goes straight to the
    slot that the receive names.
    """

    send: int
    receive: int
    port: bool
    slot: int


class MatchedMessages:
    """All messages of a program whose ranks are on ``hosts``, with the cells and the order of its steps.

    ``out`` maps the sending step to its message, ``into`` the receiving step. ``scratch`` is the number of
    scratch chunks that each rank needs.
    """

    def __init__(self, program: Program, hosts: Sequence[int], *, in_place: bool) -> None:
        self.program = program
        links: ThreadblockLinks = links_of(program)
        self.cells: Cells = cells_of(program, in_place=in_place)
        self._part = PARTS.get(COLLECTIVES[program.collective.kind], "") if in_place else ""
        self.tb: list[int] = program.tb_of.tolist()
        self.rank: list[int] = program.tb_rank[program.tb_of].tolist()
        self._receiver = {
            send: receive
            for receive, send in enumerate(links.sender.tolist())
            if send >= 0 and links.receives[receive]
        }
        self._ports = {
            send
            for send, receive in self._receiver.items()
            if hosts[self.rank[send]] != hosts[self.rank[receive]]
        }
        self._before = self._predecessors(links)
        self._touching: dict[int, list[tuple[int, bool]]] = {}
        for step in range(program.steps):
            for cell in self._read(step):
                self._touching.setdefault(cell, []).append((step, False))
            for cell in self._written(step):
                self._touching.setdefault(cell, []).append((step, True))
        self.scratch = list(program.scratch_chunks)
        self.out: dict[int, MatchedMessage] = {}
        self.into: dict[int, MatchedMessage] = {}
        for send, receive in sorted(self._receiver.items()):
            direct = self._arrives_home(send, receive)
            slot = -1 if direct else self.new_scratch(self.rank[receive], int(program.count[receive]))
            message = MatchedMessage(send, receive, send in self._ports, slot)
            self.out[send] = self.into[receive] = message

    def new_scratch(self, rank: int, count: int) -> int:
        """Add ``count`` chunks to a rank's scratch and return the first."""
        self.scratch[rank] += count
        return self.scratch[rank] - count

    def home(self, receive: int) -> tuple[str, int]:
        """Return (buffer, chunk) of the place that peers put a message to.

        In place, a rank's part is named as chunks of the whole buffer: a peer would put at its own part.
        """
        program, rank = self.program, self.rank[receive]
        buffer, chunk = int(program.dst_buffer[receive]), int(program.dst_slot[receive])
        if BUFFERS[buffer] != self._part:
            return BUFFERS[buffer], chunk
        return "io"[1 - buffer], rank * int(self.cells.size[rank, buffer]) + chunk

    def unacknowledged(self) -> set[tuple[int, int]]:
        """Return the (sending, receiving) block pairs whose last arrival the sender cannot know.

        The last message over a port may still be in flight when all blocks of the sender have ended, and the
        library cannot wait for it.
        """
        last: dict[tuple[int, int], MatchedMessage] = {}
        for message in self.out.values():
            if message.port:
                last[self.tb[message.send], self.tb[message.receive]] = message
        program = self.program
        ends: list[list[int]] = [[] for _ in range(program.ranks)]
        for tb in range(program.threadblocks):
            if program.tb_start[tb] < program.tb_start[tb + 1]:
                ends[int(program.tb_rank[tb])].append(int(program.tb_start[tb + 1]) - 1)
        return {
            blocks
            for blocks, message in last.items()
            if not any(self._follows(end, message.receive) for end in ends[self.rank[message.send]])
        }

    def safe_source(self, send: int) -> bool:
        """Return whether a port can read the source of a message itself.

        It must be scratch, and stay unchanged until the message has arrived.
        """
        receive = self._receiver[send]
        if not self._in_scratch(send):
            return False
        cells = self._read(send) if self.program.op[send] == _S else self._written(send)
        for cell in cells:
            for step, writes in self._touching[cell]:
                if not writes or self._follows(send, step):
                    continue
                message = self.into.get(step)
                first = message.send if message is not None and message.slot < 0 else step
                if not self._follows(first, receive):
                    return False
        return True

    def _predecessors(self, links: ThreadblockLinks) -> list[int]:
        """Return for each step, as bits, the steps before it by block order, waits or messages."""
        program = self.program
        order = run(links, FIFO_DEPTH)[0].tolist()
        if len(order) < program.steps:
            raise UsageError(f"{program.name} deadlocks", hint="ccctl verify tells where.")
        start, goal, sender = program.tb_start.tolist(), links.goal.tolist(), links.sender.tolist()
        found = [0] * program.steps
        for step in order:
            earlier = [goal[step], sender[step] if links.receives[step] else -1]
            earlier.append(step - 1 if step > start[self.tb[step]] else -1)
            for one in earlier:
                if one >= 0:
                    found[step] |= found[one] | 1 << one
        return found

    def _follows(self, later: int, earlier: int) -> bool:
        """Return whether ``earlier`` is ``later`` or happens before it."""
        return later == earlier or bool(self._before[later] >> earlier & 1)

    def _in_scratch(self, send: int) -> bool:
        """Return whether the source of a message is scratch of the program.

        The executor hands ports no offset of input and output in their allocations: what a port is to read
        must lie in scratch.
        """
        program = self.program
        buffer = program.src_buffer if program.op[send] == _S else program.dst_buffer
        return int(buffer[send]) == SCRATCH

    def _arrives_home(self, send: int, receive: int) -> bool:
        """Return whether a message can go straight to its slot: all earlier accesses to the slot are over."""
        if self.program.op[receive] not in (_R, _RCS):
            return False
        if receive in self._ports and not self._in_scratch(receive):
            return False
        for cell in self._written(receive):
            for step, _ in self._touching[cell]:
                if self._follows(step, receive):
                    continue
                # A port may still read the source of a send until its message has arrived.
                read_late = step in self._ports and self._in_scratch(step)
                over = self._receiver[step] if read_late else step
                if not self._follows(send, over):
                    return False
        return True

    def _touched(self, step: int, buffer: int, slot: int) -> list[int]:
        return self.cells.touched(self.rank[step], buffer, slot, int(self.program.count[step]))

    def _read(self, step: int) -> list[int]:
        program = self.program
        if not READS_SRC[program.op[step]]:
            return []
        return self._touched(step, int(program.src_buffer[step]), int(program.src_slot[step]))

    def _written(self, step: int) -> list[int]:
        program = self.program
        if not WRITES_DST[program.op[step]]:
            return []
        return self._touched(step, int(program.dst_buffer[step]), int(program.dst_slot[step]))
