"""The messages of a program, each put straight into its receiver's slot or into scratch first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from synth.mscclpp.accesses import Accesses
from synth.mscclpp.addition_chains import addition_chains
from synth.mscclpp.block_waits import BlockWaits
from synth.mscclpp.plan import COLLECTIVES, PARTS
from synth.program import BUFFERS, OPS, SCRATCH, Program

__all__ = ["MatchedMessage", "MatchedMessages"]

_NOP, _S, _R, _RCS, _COPY = (OPS.index(name) for name in ("nop", "s", "r", "rcs", "cpy"))


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
    """All messages of a program whose ranks are on ``hosts``, and the additions that become one.

    ``out`` maps the sending step to its message, ``into`` the receiving step. ``sums`` maps the last of
    several additions to all of them. ``scratch`` is the number of scratch chunks that each rank needs.
    """

    def __init__(self, program: Program, hosts: Sequence[int], *, in_place: bool) -> None:
        self.program = program
        self.accesses = Accesses(program, in_place=in_place)
        self.cells, self.tb, self.rank = self.accesses.cells, self.accesses.tb, self.accesses.rank
        self._part = PARTS.get(COLLECTIVES[program.collective.kind], "") if in_place else ""
        self._receiver = {send: receive for receive, send in enumerate(self.accesses.sender) if send >= 0}
        self._ports = {
            send
            for send, receive in self._receiver.items()
            if hosts[self.rank[send]] != hosts[self.rank[receive]]
        }
        self.sums = addition_chains(self.accesses)
        self.accesses.join(self.sums)
        self.scratch = list(program.scratch_chunks)
        self.out: dict[int, MatchedMessage] = {}
        self.into: dict[int, MatchedMessage] = {}
        for send, receive in sorted(self._receiver.items()):
            direct = self._arrives_home(send, receive)
            slot = -1 if direct else self.new_scratch(self.rank[receive], int(program.count[receive]))
            message = MatchedMessage(send, receive, send in self._ports, slot)
            self.out[send] = self.into[receive] = message

    def idle(self) -> set[int]:
        """Return the steps that only wait: a later addition or the sender's put does the rest, if any."""
        op, accesses = self.program.op, self.accesses
        home = {step for step, message in self.into.items() if message.slot < 0 and op[step] == _R}
        added = {step for sum_ in self.sums.values() for step in sum_[:-1]}
        in_place = {
            step
            for step in np.flatnonzero(op == _COPY).tolist()
            if accesses.read(step) == accesses.written(step)
        }
        return home | added | in_place | set(np.flatnonzero(op == _NOP).tolist())

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

    def unacknowledged(self, waits: BlockWaits) -> set[tuple[int, int]]:
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
            if not any(waits.follows(end, message.receive) for end in ends[self.rank[message.send]])
        }

    def safe_source(self, send: int) -> bool:
        """Return whether a port can read the source of a message itself.

        It must be scratch, and stay unchanged until the message has arrived.
        """
        receive = self._receiver[send]
        if not self._in_scratch(send):
            return False
        cells = self.accesses.read(send) if self.program.op[send] == _S else self.accesses.written(send)
        for step in {step for cell in cells for step, writes in self.accesses.touching[cell] if writes}:
            if self.accesses.follows(send, step):
                continue
            message = self.into.get(step)
            first = message.send if message is not None and message.slot < 0 else step
            if not self.accesses.follows(first, receive):
                return False
        return True

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
        cells = self.accesses.written(receive)
        for step in {step for cell in cells for step, _ in self.accesses.touching[cell]}:
            if self.accesses.follows(step, receive):
                continue
            # A port may still read the source of a send until its message has arrived.
            read_late = step in self._ports and self._in_scratch(step)
            over = self._receiver[step] if read_late else step
            if not self.accesses.follows(send, over):
                return False
        return True
