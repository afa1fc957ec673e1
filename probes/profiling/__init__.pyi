from .budget import Turns as Turns, in_turn as in_turn, links_at as links_at
from .combine import brought_up_to_date as brought_up_to_date, joined as joined, recalled as recalled
from .concurrent import ConcurrentRequest as ConcurrentRequest, flows_of as flows_of
from .declared import NICS as NICS, bind_nic as bind_nic, host_of as host_of
from .drift import (
    Change as Change,
    Drift as Drift,
    below_expectation as below_expectation,
    compare as compare,
    together as together,
)
from .findings import faults_of as faults_of, with_faults as with_faults
from .history import RECENT_RUNS as RECENT_RUNS, Event as Event, History as History, begun as begun
from .names import Names as Names
from .options import Effort as Effort
from .passive import Sends as Sends, passive_profile as passive_profile
from .raw_samples import (
    RawSamples as RawSamples,
    raw_samples as raw_samples,
    samples_joined as samples_joined,
    unproven as unproven,
)
from .task import Begun as Begun, profile as profile, rescued as rescued
from .watching import (
    EFFECT as EFFECT,
    Standing as Standing,
    WatchVerdict as WatchVerdict,
    judged as judged,
    with_events as with_events,
)
