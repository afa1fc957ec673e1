"""Sums of MPI ranks under the rules in force, bit by bit, and under each algorithm."""

import numpy as np

from exec.library_rules.sweep import PrivateBuffers
from exec.peers.mpi import MpiPeer
from synth.collective import collective


def sums(comm, request, progress):
    """Return the bits of the sum by size and algorithm, on the world and on all ranks but the last.

    "" is what the library takes itself. In which order numbers are added shows in their last bits.
    """
    counts, algorithms = request
    part = comm.Split(comm.Get_rank() < comm.Get_size() - 1)
    return {
        (ranks.Get_size(), count): {name: _bits(ranks, count, name) for name in algorithms}
        for ranks in (comm, part)
        for count in counts
    }


def _bits(comm, count, algorithm):
    random = np.random.default_rng(comm.Get_rank())
    send = (random.random(count) * 10.0 ** random.integers(-4, 4, count)).astype(np.float32)
    sides = PrivateBuffers(send, np.zeros_like(send))
    call = MpiPeer(comm, algorithm).ready(collective("all_reduce", comm.Get_size()), sides, "sum")
    call.run()
    found = sides.recv.tobytes()
    call.close()
    return found
