from .horizon_search import (
    CLOSE as CLOSE,
    HorizonSearch as HorizonSearch,
    Mechanism as Mechanism,
    copies_to_all as copies_to_all,
)
from .recovery import completed as completed
from .time_expanded_milp import (
    LinkMove as LinkMove,
    by_orbits as by_orbits,
    moves_of as moves_of,
    program as program,
)
from .time_expanded_network import (
    Expansion as Expansion,
    TimeGrid as TimeGrid,
    bundle as bundle,
    expand as expand,
    grid_of as grid_of,
)
