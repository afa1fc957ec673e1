"""Files of other tools: reports of benchmarks, timed calls and dumps of jobs.

In: files of nccl-tests, the OSU benchmarks, NCCL's Inspector and RAS, and PyTorch's flight recorder. Out: a
`Report`, the waiting of ranks for each other, the ranks that hold others up. Read `nccl_tests`, `osu`;
`timed_calls`, `nccl_inspector`; `lateness`, `nccl_ras`, `flight_recorder`.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
