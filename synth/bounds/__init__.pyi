from .cuts import (
    candidate_cuts as candidate_cuts,
    cost_levels as cost_levels,
    gates as gates,
    labelings as labelings,
)
from .in_network import crossing as crossing
from .link_prices import (
    NetworkPart as NetworkPart,
    Route as Route,
    StepDemand as StepDemand,
    StepFlow as StepFlow,
    Upgrade as Upgrade,
    parts_of as parts_of,
    step_flow as step_flow,
    upgraded as upgraded,
    upgrades as upgrades,
)
from .lower_bounds import (
    ORDER_BOUND as ORDER_BOUND,
    bounds as bounds,
    least_s_per_byte as least_s_per_byte,
    schedule_bounds as schedule_bounds,
)
from .packing_lp import Trees as Trees, link_load as link_load, solve as solve
from .symmetric import host_bounds as host_bounds, symmetric_bounds as symmetric_bounds
from .wavefront_bound import wavefront as wavefront
