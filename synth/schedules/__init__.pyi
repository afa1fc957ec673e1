from .kinds import SCHEDULE_KINDS as SCHEDULE_KINDS
from .periodic import PeriodicSchedule as PeriodicSchedule
from .protocol import AnySchedule as AnySchedule, Obligation as Obligation
from .schedule import (
    COPY as COPY,
    REDUCE as REDUCE,
    Bound as Bound,
    Outcome as Outcome,
    Race as Race,
    Raced as Raced,
    Schedule as Schedule,
    Timing as Timing,
)
from .selection import (
    Point as Point,
    Range as Range,
    Selection as Selection,
    UnsizedSchedule as UnsizedSchedule,
)
from .symmetric import SYMMETRIC as SYMMETRIC, SymmetricSchedule as SymmetricSchedule
