from .collective import Collective as Collective
from .demands import DemandPlan as DemandPlan, DemandPlanner as DemandPlanner
from .errors import NotApplicableError as NotApplicableError, NotProvenError as NotProvenError
from .network import Network as Network
from .networks import family as family, from_profile as from_profile, from_topology as from_topology
from .portfolio import (
    METHODS as METHODS,
    CollectiveRequest as CollectiveRequest,
    RaceRunner as RaceRunner,
    RaceWinner as RaceWinner,
    Request as Request,
    Synthesis as Synthesis,
    makes_attempts as makes_attempts,
)
from .program import Program as Program
from .schedules import Schedule as Schedule, Selection as Selection
from .simulation import Costs as Costs
from .stages import compile as compile, simulate as simulate, synthesize as synthesize, verify as verify  # noqa: A004
