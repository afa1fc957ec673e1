"""Differences between two topologies: what is gone, less, elsewhere or more.

In: a reference and what was found. Out: `Difference` records with a severity each, alike hosts in groups.
Read `model`, `matching`, `compare`.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
