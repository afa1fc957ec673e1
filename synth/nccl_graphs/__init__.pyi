from .capacities import capacities_of as capacities_of
from .channels import total_gbs as total_gbs
from .graph_xml import graph_file as graph_file
from .planner import (
    HostGraphs as HostGraphs,
    KindOfHost as KindOfHost,
    PlannedGraph as PlannedGraph,
    plan_graphs as plan_graphs,
    plan_kinds as plan_kinds,
)
