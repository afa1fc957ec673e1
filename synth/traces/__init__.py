"""Traces for other simulators: the sends, receives and adds of each rank of a schedule.

In: a schedule that has been checked. Out: GOAL (``goal_text``) and Chakra execution traces
(``chakra_trace``), with the files that ASTRA-sim needs beside them (``astra_sim_files``). Read in this order:

- ``operations``: the operations of each rank, and their dependencies.
- ``goal``: as text for LogGOPSim and ATLAHS.
- ``chakra``: as messages of MLCommons Chakra.
- ``astra_sim``: configurations of system, workload and network.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
