"""Files of other tools: reports of benchmarks, timed calls, dumps and logs of jobs, checks of hosts.

In: files of nccl-tests, the OSU benchmarks, NCCL's Inspector and RAS, PyTorch's flight recorder, DCGM,
nvbandwidth, SuperBench and gcm, and NCCL's log. Out: a `Report`, the waiting of ranks for each other, the
ranks that hold others up, and `Evidence` of what is wrong. Read `nccl_tests`, `osu`; `timed_calls`,
`nccl_inspector`; `lateness`, `nccl_ras`, `flight_recorder`; `evidence`, `dcgm`, `nvbandwidth`, `superbench`,
`gcm`, `nccl_log`, `nccl_debug`.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
