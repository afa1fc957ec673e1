"""Differences between two topologies: devices that are missing, degraded, moved or additional.

In: a reference and the topology found. Out: `Difference` records, each with a severity, and groups of equal
hosts. Read `model`, `matching`, `comparison`.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
