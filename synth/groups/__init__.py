"""DS-Sync: groups of ranks that average their parameters, iteration by iteration (Sec. III), and their cost.

In: a `Network` with a link between every two ranks. Out: `Groups`, the periodic divide-and-shuffle pattern
with its rate of consensus and its predicted time. Read `artifact`, `patterns`, `consensus_rate`, `costs`,
`racks`, then `planner`.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
