"""DS-Sync: which ranks average their parameters in which iteration (Sec. III), and what that costs.

In: a `Network` with a link between every two ranks. Out: `Groups`, the periodic divide-and-shuffle pattern
with its rate of consensus and its predicted time. Read `artifact`, `patterns`, `consensus`, `costs`, `racks`,
then `planner`.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
