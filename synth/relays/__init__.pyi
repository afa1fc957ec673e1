from .behavior import behaviors as behaviors, taking_part as taking_part
from .partial import (
    Phase as Phase,
    fastest_late_phase as fastest_late_phase,
    has_data as has_data,
    late_schedule as late_schedule,
    partial_phase as partial_phase,
    partial_schedule as partial_schedule,
)
from .pieces import cut as cut
