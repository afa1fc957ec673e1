from . import once as once
from .once import (
    LinkTurns as LinkTurns,
    Measure as Measure,
    WatchFindings as WatchFindings,
    WatchOutcome as WatchOutcome,
    WatchRequest as WatchRequest,
    replan as replan,
)
from .state import StateFolder as StateFolder, opened as opened, read_schedule as read_schedule
