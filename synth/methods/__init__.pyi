from . import (
    adapcc as adapcc,
    aligned as aligned,
    bidirectional as bidirectional,
    bine as bine,
    circulant as circulant,
    direct as direct,
    doubling as doubling,
    forest as forest,
    greedy as greedy,
    hierarchical as hierarchical,
    host_halving as host_halving,
    ilp as ilp,
    nvls as nvls,
    paths as paths,
    ring as ring,
    scatter_allgather as scatter_allgather,
    tree as tree,
    trivance as trivance,
    two_step as two_step,
)
from .ilp import both_halves as both_halves, require_one_way as require_one_way
from .tree import parents as parents, rooted as rooted
