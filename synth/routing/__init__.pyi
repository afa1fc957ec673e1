from .congestion_prices import ETA as ETA, Resources as Resources, resources as resources
from .min_congestion_paths import Demands as Demands, route as route
from .or_opt import shortened as shortened
from .steiner_trees import grow as grow, star as star
from .sum_trees import (
    SumTree as SumTree,
    aligned_tree as aligned_tree,
    batch_of as batch_of,
    place_sums as place_sums,
)
