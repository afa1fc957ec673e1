"""Paths between two devices of a host: PCI tree, path type, route, expected bandwidth.

In: a `Host` of the topology. Out: the type of a path as NCCL names it (PIX, PXB, PHB, NODE, SYS, NV#), the
devices and links on it, the GB/s that tables expect, and why it is not better. Read `pci_tree`, `path_type`,
`bandwidth`, `expected`, `route`, `explanation`.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
