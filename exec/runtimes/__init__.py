"""Reference runtimes: MSCCL's interpreter of XML and MSCCL++'s executor of plans, on NumPy buffers.

Each is written from the sources of the runtime and knows only what the file says. So it shows what the
runtime would do with any file. In: a program as read from MSCCL XML, or a plan as read from JSON. Out: a
``RuntimeReport`` with wrong elements, deadlocks and races. `trial` runs a file in several orders, sizes and
placements; `msccl` and `mscclpp` are the two machines; `races` finds accesses that nothing orders; `results`
says what a collective must give.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
