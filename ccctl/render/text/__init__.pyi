from . import (
    differences as differences,
    drift as drift,
    lab as lab,
    profile as profile,
    rank_order as rank_order,
    relay as relay,
    remarks as remarks,
    selection as selection,
    sends as sends,
    topology as topology,
    utilization as utilization,
)
from .history import moment as moment
from .profile import say as say
from .program import draw_timing as draw_timing
from .selection import (
    busbw_gbs as busbw_gbs,
    draw_runtime as draw_runtime,
    runtime_summary as runtime_summary,
)
from .topology import headline as headline
from .utilization import classes as classes, over_time as over_time
