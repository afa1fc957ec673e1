from .algorithms import algorithm_of as algorithm_of
from .planner import (
    HostRanks as HostRanks,
    RankOrder as RankOrder,
    pattern_time_s as pattern_time_s,
    plan_order as plan_order,
)
