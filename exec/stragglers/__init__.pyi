from . import arrivals as arrivals
from .arrival_trace import UNITS as UNITS, parse_trace as parse_trace
from .arrivals import Arrivals as Arrivals
from .buy_cost import (
    CollectiveCosts as CollectiveCosts,
    ConstantCosts as ConstantCosts,
    CostsOfSchedule as CostsOfSchedule,
    SimulatedCosts as SimulatedCosts,
    VolumeCosts as VolumeCosts,
)
from .late_base import PIECES as PIECES, late_bases as late_bases
from .late_chunks import (
    Entrance as Entrance,
    Offers as Offers,
    covered_slots as covered_slots,
    joined_elements as joined_elements,
    left_out as left_out,
    no_offers as no_offers,
    without_joined as without_joined,
)
from .phase_buffers import input_of as input_of, merged as merged
from .policies import Replay as Replay, ready_sets as ready_sets, replay_arrivals as replay_arrivals
from .ski_rental import (
    CYCLE_S as CYCLE_S,
    FAULT_FACTOR as FAULT_FACTOR,
    WaitingCollective as WaitingCollective,
    fault_deadline_s as fault_deadline_s,
)
