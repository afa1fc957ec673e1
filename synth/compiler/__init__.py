"""The compiler (GC3, Sec. 5): from chunks to threadblocks of instructions, in passes.

In: a chunk DAG, traced by `synth.lang` or lowered from a schedule. Out: a `Program` for `synth.check` to
judge. Read `chunk_dag`, `instruction_dag`, `fuse`, `sort`, `threadblocks`, `synchronize`; `compile` runs
these passes in this order.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
