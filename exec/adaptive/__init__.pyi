from .backend import Work as Work
from .coordinator import Policy as Policy
from .iterations import Iterations as Iterations, IterationsReport as IterationsReport, gathered as gathered
from .links_now import measured_network as measured_network
from .messages import REDUCING as REDUCING, SERVED as SERVED, Request as Request
from .replanner import good_schedules as good_schedules
from .session import Event as Event, Session as Session
