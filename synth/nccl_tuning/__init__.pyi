from .cost_model import World as World
from .planner import TuningPlan as TuningPlan, plan_tuning as plan_tuning
