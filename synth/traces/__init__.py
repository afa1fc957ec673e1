"""Traces of other tools: of a schedule for simulators, and of a training step.

In: a schedule that has been checked. Out: GOAL (``goal_text``) and Chakra execution traces
(``chakra_trace``), with the files that ASTRA-sim needs beside them (``astra_sim_files``). And from the Chakra
traces of a training step (``trace_nodes``) its collectives and their starts (``traced_collectives``). Read in
this order:

- ``operations``: the operations of each rank, and their dependencies.
- ``goal``: as text for LogGOPSim and ATLAHS.
- ``chakra``: as messages of MLCommons Chakra, written and read.
- ``astra_sim``: configurations of system, workload and network.
- ``training_step``: the collectives of a step, and when they start.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
