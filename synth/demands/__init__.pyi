from .planner import (
    DemandPlan as DemandPlan,
    DemandPlanner as DemandPlanner,
    serves as serves,
    synthesize as synthesize,
)
