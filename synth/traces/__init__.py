"""Traces for other simulators: what each rank of a schedule sends, receives and adds, and after what.

In goes a schedule that has been checked; out come GOAL (``goal_text``) and Chakra execution traces
(``chakra_trace``), with the files that ASTRA-sim wants beside them (``astra_sim_files``). To be read in this
order:

- ``operations``: the operations of each rank, and what each waits for.
- ``goal``: as text for LogGOPSim and ATLAHS.
- ``chakra``: as messages of MLCommons Chakra.
- ``astra_sim``: configurations of system, workload and network.
"""

from synth.traces.astra_sim import Files, astra_sim_files
from synth.traces.chakra import chakra_trace
from synth.traces.goal import goal_text
from synth.traces.operations import ADD, RECV, SEND, Operation, operations_of

__all__ = [
    "ADD",
    "RECV",
    "SEND",
    "Files",
    "Operation",
    "astra_sim_files",
    "chakra_trace",
    "goal_text",
    "operations_of",
]
