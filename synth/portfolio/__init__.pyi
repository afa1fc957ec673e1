from .attempts import METHODS as METHODS, SMALLEST_CHUNK_BYTES as SMALLEST_CHUNK_BYTES, method_of as method_of
from .incumbent import Attempt as Attempt
from .library_rate import library_rates as library_rates, nccl_time as nccl_time
from .memory_limits import peak_bytes as peak_bytes
from .periodic import body_of as body_of, in_periods as in_periods, timed_periodic as timed_periodic
from .plain import bounds_of as bounds_of, warm as warm
from .planning import makes_attempts as makes_attempts, planned as planned
from .proof import proven_with as proven_with
from .request import (
    CollectiveRequest as CollectiveRequest,
    Request as Request,
    cut as cut,
    cut_again as cut_again,
)
from .runtime_limits import (
    MOST_PLAN_OPERATIONS as MOST_PLAN_OPERATIONS,
    RUNTIMES as RUNTIMES,
    early_limit as early_limit,
    plan_limit as plan_limit,
    program_limits as program_limits,
    stuck_above as stuck_above,
)
from .runtime_sizes import SizedProgram as SizedProgram, runtime_sweep as runtime_sweep
from .size_sweep import sizes_between as sizes_between, timed as timed
from .synthesis import (
    Loaded as Loaded,
    LoadedRange as LoadedRange,
    RaceRunner as RaceRunner,
    RaceWinner as RaceWinner,
    Synthesis as Synthesis,
)
from .uneven import cut_request as cut_request, uneven_request as uneven_request
from .worker_pool import (
    ProcessPool as ProcessPool,
    WorkerPool as WorkerPool,
    WorkerPools as WorkerPools,
    cores as cores,
)
