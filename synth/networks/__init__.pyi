from .connectivity import (
    missing_way as missing_way,
    require_ways as require_ways,
    strong_components as strong_components,
)
from .declared_ports import with_declared_ports as with_declared_ports
from .dgx import (
    hosts_named as hosts_named,
    is_pod as is_pod,
    machine_of as machine_of,
    pod as pod,
    pod_aliases as pod_aliases,
    pod_names as pod_names,
    pods_of as pods_of,
    public_busbw_gbs as public_busbw_gbs,
    threadblock_bytes_per_s as threadblock_bytes_per_s,
    trays_of as trays_of,
)
from .failures import (
    Failures as Failures,
    failures_of as failures_of,
    kept_links as kept_links,
    without as without,
)
from .families import family as family, is_family as is_family, names as names
from .host_links import Machine as Machine
from .link_list import read_link_list as read_link_list
from .measured import from_profile as from_profile
from .named import NamedNetwork as NamedNetwork, symmetry_of as symmetry_of
from .nominal import from_topology as from_topology
from .path_search import (
    ShortestPaths as ShortestPaths,
    distances_s as distances_s,
    shortest_paths as shortest_paths,
)
from .regular_orders import regular_orders as regular_orders
from .subnetwork import (
    embedded as embedded,
    host_places as host_places,
    hosts_of as hosts_of,
    link_table as link_table,
    links_between as links_between,
    named_back as named_back,
    rank_list as rank_list,
    reachable as reachable,
    renumbered as renumbered,
    restricted as restricted,
)
from .symmetric import SymmetricNetwork as SymmetricNetwork
from .translations import found_symmetry as found_symmetry
