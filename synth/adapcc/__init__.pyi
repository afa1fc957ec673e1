from .logical_graph import opposites as opposites
from .path_expansion import Routes as Routes, along as along, plan_routes as plan_routes
from .two_level_strategy import Planner as Planner, TwoLevelPlan as TwoLevelPlan
