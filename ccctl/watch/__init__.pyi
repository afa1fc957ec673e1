from . import once as once
from .once import (
    Asked as Asked,
    Deadline as Deadline,
    Found as Found,
    Look as Look,
    Measure as Measure,
    Outcome as Outcome,
    replan as replan,
)
from .state import State as State, opened as opened, read_schedule as read_schedule
