from . import (
    acceptance as acceptance,
    adaptive as adaptive,
    declared as declared,
    dumps as dumps,
    evidence as evidence,
    groups as groups,
    lab as lab,
    loaded as loaded,
    nccl_graphs as nccl_graphs,
    profile as profile,
    rank_order as rank_order,
    report as report,
    selection as selection,
    step as step,
    stragglers as stragglers,
    synthesis as synthesis,
    topology as topology,
    training as training,
    utilization as utilization,
    watch as watch,
)
from .adaptive import event_line as event_line
from .breakdown import (
    draw_breakdowns as draw_breakdowns,
    kinds_of as kinds_of,
    largest_difference as largest_difference,
)
from .explained import Explained as Explained
from .fusion import FusionComparison as FusionComparison, headline_of as headline_of
from .history import moment as moment
from .kinds import drawing_of as drawing_of
from .profile import say as say
from .program import (
    MEANINGS as MEANINGS,
    draw_timing as draw_timing,
    limit_of_program as limit_of_program,
)
from .report import ColumnTable as ColumnTable
from .schedule import optimality as optimality
from .selection import (
    busbw_gbs as busbw_gbs,
    draw_runtime as draw_runtime,
    runtime_summary as runtime_summary,
)
from .side_by_side import draw_changes as draw_changes, draw_side_by_side as draw_side_by_side
from .synthesis import multiples as multiples, predicted_line as predicted_line
from .topology import headline as headline
from .utilization import classes as classes, is_behind_ports as is_behind_ports, over_time as over_time
