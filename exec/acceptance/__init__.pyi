from .certificate import (
    Certificate as Certificate,
    Culprit as Culprit,
    FaultCost as FaultCost,
    Spares as Spares,
    Stage as Stage,
    Verdict as Verdict,
    WholeRow as WholeRow,
)
from .compare import Changes as Changes, changes as changes
from .cost import collective_time_s as collective_time_s, costs as costs, spares as spares
from .evidence import evidence_of as evidence_of, is_evidence as is_evidence
from .network_bought import (
    link_classes as link_classes,
    repaired as repaired,
    sound_network as sound_network,
    usual_costs as usual_costs,
    without_hosts as without_hosts,
)
from .plan import read_plan as read_plan
from .spec import GOODPUT as GOODPUT, bought as bought, payload_rate as payload_rate
from .verdict import Measured as Measured, Terms as Terms, judge as judge
