from .base import Call as Call, Peer as Peer
from .mpi import (
    MpiPeer as MpiPeer,
    algorithm_names as algorithm_names,
    algorithm_numbers as algorithm_numbers,
)
from .mpi_t import Variables as Variables, library_path as library_path
from .registry import (
    libraries_here as libraries_here,
    library_of as library_of,
    open_peers as open_peers,
    parse_peers as parse_peers,
    require_here as require_here,
)
