"""Traces for other simulators: what each rank of a schedule sends, receives and adds, and after what.

In goes a schedule that has been checked; out come GOAL (``goal_text``) and Chakra execution traces
(``chakra_trace``), with the files that ASTRA-sim wants beside them (``astra_sim_files``). To be read in this
order:

- ``operations``: the operations of each rank, and what each waits for.
- ``goal``: as text for LogGOPSim and ATLAHS.
- ``chakra``: as messages of MLCommons Chakra.
- ``astra_sim``: configurations of system, workload and network.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
