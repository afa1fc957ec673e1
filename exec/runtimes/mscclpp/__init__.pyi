from .interleave import run_plan as run_plan
