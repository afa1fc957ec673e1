"""Programs on CUDA devices, by GC3's interpreter (one persistent kernel) or AdapCC's transmission contexts.

In: a program and a rank's buffers. Out: a `CudaPlan`, which runs it. Read `capabilities` (facts about the
GPUs), `select` (the choice of executor), the packages `kernel` and `streams` (the executors), then `plan`.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
