from .contention import (
    behind as behind,
    disturbed as disturbed,
    held_up as held_up,
    kept_waiting as kept_waiting,
)
from .model import Share as Share, is_of as is_of, nic_name as nic_name, ports as ports
from .nics import contradicted as contradicted, nic_shares as nic_shares
from .trials import (
    ContentionTrials as ContentionTrials,
    Known as Known,
    attempts as attempts,
    carries as carries,
)
from .trunks import one_at_a_time as one_at_a_time, trunk_shares as trunk_shares
