from .chunk_slots import dependencies as dependencies, touched as touched
from .contribution_counts import contributions as contributions
from .fair_program import fair_time_s as fair_time_s
from .fifo_order import (
    ThreadblockLinks as ThreadblockLinks,
    connections as connections,
    links_of as links_of,
    run as run,
)
from .max_min_fairness import Flows as Flows, carry as carry, next_s as next_s, share as share
from .program import (
    Costs as Costs,
    ProgramTiming as ProgramTiming,
    links_used as links_used,
    simulate_program as simulate_program,
)
from .protocols import PROTOCOLS as PROTOCOLS, simulate_by as simulate_by, time_by as time_by
from .relocate import moved_to as moved_to
from .schedule import (
    critical_path as critical_path,
    replay as replay,
    simulated as simulated,
    utilization as utilization,
)
from .side_by_side import replay_together as replay_together
from .simgrid import replay_in_simgrid as replay_in_simgrid, takes_turns as takes_turns
from .threadblock_machine import CAUSES as CAUSES, run_threadblocks as run_threadblocks
