"""Acceptance of a cluster: a verdict with proof, and the culprits by name with what each costs.

In: the health of hosts, a profile, a report of collectives, and files of other tools as evidence. Out: a
`Certificate`. Start with the modules `certificate` and `evidence`.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
