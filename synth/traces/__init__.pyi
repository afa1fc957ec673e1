from .astra_sim import astra_sim_files as astra_sim_files
from .chakra import trace_nodes as trace_nodes
from .goal import goal_text as goal_text
from .operations import ADD as ADD, RECV as RECV, SEND as SEND, operations_of as operations_of
from .training_step import (
    TracedCollective as TracedCollective,
    busiest as busiest,
    traced_collectives as traced_collectives,
)
