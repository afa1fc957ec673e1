from .artifact import Division as Division, Groups as Groups, PatternName as PatternName
from .consensus_rate import consensus as consensus
from .costs import AveragingCosts as AveragingCosts
from .patterns import RackLayout as RackLayout
from .planner import (
    PATTERNS as PATTERNS,
    Planned as Planned,
    adjust_groups as adjust_groups,
    disagreement as disagreement,
    pattern_named as pattern_named,
    plan_groups as plan_groups,
)
