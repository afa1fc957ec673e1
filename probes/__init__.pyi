from .detection import detect as detect
from .link_costs import Profile as Profile
from .profiling import Effort as Effort, profile as profile
from .topology import Topology as Topology
