from .backend import Work as Work
from .coordinator import WaitPolicy as WaitPolicy
from .iterations import Iterations as Iterations, IterationsReport as IterationsReport
from .links_now import measured_network as measured_network
from .messages import SERVED as SERVED, CollectiveCall as CollectiveCall
from .replanner import good_schedules as good_schedules
from .session import Session as Session
from .session_state import SessionEvent as SessionEvent
