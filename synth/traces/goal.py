"""A schedule in GOAL, the language of LogGOPSim and ATLAHS (Hoefler, Siebert, Lumsdaine, ICPP 2009).

The network is not in the file: LogGOPSim takes one latency L and one gap G a byte, for ports that are one a
rank and way, on its command line.
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
