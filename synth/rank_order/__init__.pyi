from .algorithms import algorithm_of as algorithm_of
from .planner import HostRanks as HostRanks, RankOrder as RankOrder, plan_order as plan_order
