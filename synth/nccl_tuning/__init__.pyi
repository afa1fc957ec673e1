from .cost_model import NcclWorld as NcclWorld
from .planner import TuningPlan as TuningPlan, plan_tuning as plan_tuning
