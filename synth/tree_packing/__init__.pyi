from .arborescence_pairs import pack_pairs as pack_pairs
from .arborescences import RootedPacking as RootedPacking, pack_rooted as pack_rooted
from .balanced_packing import balanced_trees as balanced_trees, exchanged as exchanged
from .integral_packing import gathering_trees as gathering_trees
from .rooted_trees import depths as depths
from .spanning_trees import (
    Edges as Edges,
    Packing as Packing,
    fewest as fewest,
    pack as pack,
    pair_links as pair_links,
    thinned as thinned,
)
from .two_way_trees import TwoWayTree as TwoWayTree, hung as hung
