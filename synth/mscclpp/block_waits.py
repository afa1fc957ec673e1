"""Waits between the threadblocks of a rank, without redundant ones.

An idle step only waits for its message, so its other waits can be left to later steps: to the next step of
its threadblock that is not idle, and to each step that awaits the idle step.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from synth.mscclpp.accesses import Accesses

__all__ = ["BlockWaits"]


class BlockWaits:
    """The steps that each step awaits. Steps that are not ``idle`` keep their order.

    The last step of each chain in ``sums`` also awaits the other steps of the chain. ``_before`` are the
    steps before each step, as bits; ``_left`` are the waits left to later steps. O(steps²) bits of memory.
    """

    def __init__(self, accesses: Accesses, idle: Collection[int], sums: Mapping[int, Sequence[int]]) -> None:
        steps = accesses.program.steps
        self.awaited: dict[int, list[int]] = {}
        self._before = [0] * steps
        self._left: list[Collection[int]] = [()] * steps
        for step in accesses.order:
            previous, goal, sender = accesses.previous(step), accesses.goal[step], accesses.sender[step]
            wanted = {*sums.get(step, ())[:-1], *(self._left[previous] if previous >= 0 else ())}
            if goal >= 0:
                wanted.add(goal)
            known = self._until(previous) | self._until(sender)
            if step in idle:
                self._left[step] = [one for one in wanted if not known >> one & 1]
            else:
                self.awaited[step] = self._needed(wanted, known)
                for one in self.awaited[step]:
                    known |= self._until(one)
            self._before[step] = known

    def follows(self, later: int, earlier: int) -> bool:
        """Return whether ``earlier`` is ``later`` or happens before it."""
        return bool(self._until(later) >> earlier & 1)

    def _until(self, step: int) -> int:
        """Return a step and all before it, as bits."""
        return self._before[step] | 1 << step if step >= 0 else 0

    def _needed(self, wanted: set[int], known: int) -> list[int]:
        """Return which of the steps, and of the waits left at them, do not follow from each other."""
        found: set[int] = set()
        while wanted:
            found |= wanted
            wanted = {left for one in wanted for left in self._left[one]} - found
        new = []
        # The steps before a known one are known. Later steps first, as these know more.
        for one in sorted(found, reverse=True):
            if not known >> one & 1:
                new.append(one)
                known |= self._before[one]
        return [one for one in reversed(new) if not known >> one & 1]
