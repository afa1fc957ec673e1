"""NCCL's graph files: the order of a host's GPUs, and the NIC, of each channel of rings and trees.

In: a host of a topology, and rates measured between its GPUs. Out: channels of equal speed with the largest
total rate found, and the file that NCCL_GRAPH_FILE names. Read `capacities`, `channels`, `planner`, then
`graph_xml`.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
