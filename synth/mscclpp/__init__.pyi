from .judge import examine_plan as examine_plan
from .lower import plan_of as plan_of
from .plan import (
    ALIGNMENT_BYTES as ALIGNMENT_BYTES,
    COLLECTIVES as COLLECTIVES,
    ExecutionPlan as ExecutionPlan,
    Operand as Operand,
    Operation as Operation,
    Threadblock as Threadblock,
)
from .reader import is_plan as is_plan, read_plan as read_plan
from .switches import switch_plan as switch_plan
from .timing import plan_time_s as plan_time_s
from .writer import write_plan as write_plan
