"""A schedule in GOAL, the language of LogGOPSim and ATLAHS (Hoefler, Siebert, Lumsdaine, ICPP 2009).

The file does not describe the network: LogGOPSim takes a latency L and a gap per byte G on its command line,
for one port into and one out of each rank.
"""

from __future__ import annotations

from synth.schedules import Schedule
from synth.traces.operations import ADD, RECV, TraceOperation, operations_of

__all__ = ["goal_text"]


def goal_text(schedule: Schedule) -> str:
    """Return one block for each rank; an add is a ``calc`` with its duration in nanoseconds. O(sends)."""
    lines = [f"num_ranks {schedule.network.ranks}", ""]
    for rank, operations in enumerate(operations_of(schedule)):
        lines.append(f"rank {rank} {{")
        for at, operation in enumerate(operations):
            lines.append(f"l{at}: {_action(operation)}")
            lines += [f"l{at} requires l{before}" for before in operation.after]
        lines += ["}", ""]
    return "\n".join(lines)


def _action(operation: TraceOperation) -> str:
    if operation.kind == ADD:
        return f"calc {round(operation.seconds * 1e9)}"
    way = "from" if operation.kind == RECV else "to"
    return f"{operation.kind} {operation.size_bytes}b {way} {operation.peer} tag {operation.tag}"
