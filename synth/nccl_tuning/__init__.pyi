from .cost_model import NcclWorld as NcclWorld
from .planner import SizeChoice as SizeChoice, TuningPlan as TuningPlan, plan_tuning as plan_tuning
