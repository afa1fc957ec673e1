"""NCCL's choice of algorithm and protocol, and the fastest choice on the real links.

In: a network with the real rates of links, and one with the rates that NCCL assumes. Out: a ``TuningPlan``,
the settings by size. `cost_model` is NCCL's own model of time; `planner` feeds it the rates of NCCL's rings
and trees on a network.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
