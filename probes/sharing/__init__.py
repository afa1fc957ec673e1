"""Sharing: which links take bandwidth from each other, found by loading them together.

In: costs of single links and a way to time several at once. Out: NIC and trunk ports that links share. Read
`model`, `contention`, `trials`, `nics`, `trunks`.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
