"""NCCL's graph files: the order of the GPUs of a host, and its NICs, for each channel of rings and trees.

In: a host of a topology, and what was measured between its GPUs. Out: channels of equal speed that carry as
much as the links inside the host allow, and the file that NCCL_GRAPH_FILE names. Read `capacities`,
`channels`, `planner`, then `graph_file`.
"""
