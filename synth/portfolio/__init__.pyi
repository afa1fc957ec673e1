from .attempts import (
    METHODS as METHODS,
    SMALLEST_CHUNK_BYTES as SMALLEST_CHUNK_BYTES,
    Request as Request,
    method_of as method_of,
)
from .collective_request import CollectiveRequest as CollectiveRequest
from .incumbent import Attempt as Attempt
from .library_rate import library_rates as library_rates
from .memory_limits import peak_bytes as peak_bytes
from .periodic import (
    body_of as body_of,
    in_periods as in_periods,
    proven_periodic as proven_periodic,
    timed_periodic as timed_periodic,
)
from .plain_or_periodic import PeriodicSynthesis as PeriodicSynthesis, synthesize_either as synthesize_either
from .runtime_sizes import SizedProgram as SizedProgram, runtime_sweep as runtime_sweep
from .size_sweep import (
    Candidates as Candidates,
    Swept as Swept,
    candidates_of as candidates_of,
    measured as measured,
    sizes_between as sizes_between,
    sweep as sweep,
    timed as timed,
)
from .synthesize import (
    Synthesis as Synthesis,
    bounds_of as bounds_of,
    library_schedules as library_schedules,
    proven_with as proven_with,
    warm as warm,
)
from .worker_pool import (
    ProcessPool as ProcessPool,
    WorkerPool as WorkerPool,
    WorkerPools as WorkerPools,
    cores as cores,
)
