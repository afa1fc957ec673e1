from . import (
    block_exchange as block_exchange,
    gossip as gossip,
    mixtures as mixtures,
    shared_sums as shared_sums,
    stars as stars,
    symmetric_search as symmetric_search,
)
from .edge_colouring import coloured as coloured
from .justification import justified as justified, least_s as least_s
from .link_chunk_matching import (
    CLUSTER as CLUSTER,
    PLAIN as PLAIN,
    STRICT as STRICT,
    LinkFigures as LinkFigures,
    MatchingPolicy as MatchingPolicy,
    match as match,
)
from .list_scheduling import (
    Sends as Sends,
    SendsOfParts as SendsOfParts,
    in_start_order as in_start_order,
    line_up as line_up,
    link_of as link_of,
)
from .modulo_scheduling import least_period_s as least_period_s, modulo_scheduled as modulo_scheduled
from .owner_mixtures import mixed_by_owner as mixed_by_owner
from .pipelining import pipelined as pipelined
from .precedence import of_turns as of_turns
from .pruning import pruned as pruned
from .routes import along_routes as along_routes
from .shared_sums import (
    Known as Known,
    SharedSums as SharedSums,
    summed_axes as summed_axes,
)
from .step_trees import (
    Grid as Grid,
    StepTrees as StepTrees,
    grids as grids,
    in_turn as in_turn,
    routed as routed,
    step_trees as step_trees,
)
from .symmetric_search import (
    MOST_COMPARISONS as MOST_COMPARISONS,
    comparisons as comparisons,
    symmetric_schedules as symmetric_schedules,
)
from .time_reversal import backwards as backwards, reversed_in_time as reversed_in_time
