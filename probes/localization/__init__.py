"""Localization of faults: which host, NIC, pair of hosts or trunk makes links slower than they should be.

The input is a profile, what was bought, and the plan of racks and rails, if a plan exists. The result is the
fewest faults that explain the measurements, each with its evidence. Read the modules in this order: `model`,
`locate`, `links`, `racks`, `normal`, `parts`, `fit`, `rates`, `latency`, `symptoms`, `sentences`, `changes`.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
