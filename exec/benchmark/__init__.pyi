from .breakdown import GROUPS as GROUPS, Breakdown as Breakdown, Forecast as Forecast, Part as Part
from .environment import crowded as crowded, machine as machine
from .groups import GroupsRequest as GroupsRequest, MeasuredGroup as MeasuredGroup
from .integrity import IntegrityRequest as IntegrityRequest
from .judgement import (
    JudgedRow as JudgedRow,
    abnormal as abnormal,
    fitted as fitted,
    judged as judged,
    largest as largest,
    nics_of_a_host as nics_of_a_host,
    synthesized_s as synthesized_s,
    with_hosts as with_hosts,
)
from .race import (
    Entrant as Entrant,
    entrants as entrants,
    judged_race as judged_race,
    race_requests as race_requests,
)
from .regression import RowChange as RowChange, compare as compare, label_of as label_of
from .report import (
    Integrity as Integrity,
    Measurement as Measurement,
    Report as Report,
    Row as Row,
    Spread as Spread,
)
from .run_forecast import forecast as forecast
from .runner import (
    BenchRequest as BenchRequest,
    Contender as Contender,
    bench_all_task as bench_all_task,
    busbw_factor as busbw_factor,
)
from .timing import AVERAGES as AVERAGES, Repetitions as Repetitions, interleaved as interleaved
