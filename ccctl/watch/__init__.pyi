from . import once as once
from .once import (
    Asked as Asked,
    Deadline as Deadline,
    Found as Found,
    LinkTurns as LinkTurns,
    Measure as Measure,
    WatchOutcome as WatchOutcome,
    replan as replan,
)
from .state import StateFolder as StateFolder, opened as opened, read_schedule as read_schedule
