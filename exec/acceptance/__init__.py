"""Acceptance of a cluster: a verdict with proof, and the culprits by name with what each costs.

In: the health of hosts, a profile, and a report of collectives. Out: a `Certificate`. Read `certificate`.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
