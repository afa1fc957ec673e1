"""Compile the numba loops of a first `make run`, on two cores.

If it fails, nothing is lost but time: loops without machine code are compiled when they are first called.
"""

import sys
from multiprocessing import Process
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from exec.mpi.interpreter import compile_for
from probes.link_costs import HostMemory
from synth.collective import collective
from synth.compiler import lower
from synth.kernels.compiled_loop import all_compiled
from synth.methods import greedy, ring
from synth.networks import family
from synth.prediction.one_host import host_timing
from synth.scheduling.list_scheduling import in_start_order

RING = family("ring:4", [1e-6], [1e9])
MEMORY = HostMemory("", (1,), (1e-9,), (1e-9,))


def search() -> None:
    """Compile the loops of the greedy search and of the order of its sends."""
    with all_compiled():
        in_start_order(greedy.synthesize(RING, collective("all_gather", 4), 1))


def run() -> None:
    """Compile the loops that make a program, predict its time, and run it."""
    compile_for(["float32"])
    schedule = ring.synthesize(RING, collective("all_reduce", 4), 1)
    with all_compiled():
        program = lower(schedule)
        host_timing(program, RING, 1024, MEMORY)


# A process may be started by importing this file anew.
if __name__ == "__main__":
    beside = Process(target=search)
    beside.start()
    run()
    beside.join()
    sys.exit(beside.exitcode)
