"""Demands: an all_to_all whose pairs differ, planned anew in milliseconds on a known network.

In: the network, once, and a matrix of bytes for each step of a job. Out: a plan with the ranks that relay
data around busy NICs, uplinks and ports, the rate of each path, the time and a proven bound.

Read `planner`, then `relay_choice`, which moves data from busy ports to idle ones.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
