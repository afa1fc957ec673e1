"""Compile the numba loops of a first `make run` while pip installs the other packages.

It needs NumPy, SciPy and numba only. If it fails, nothing is lost: loops without machine code are compiled
when they are first called.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from exec.mpi.interpreter import compile_for
from synth.collective import collective
from synth.kernels.compiled_loop import all_compiled
from synth.methods import greedy
from synth.networks.families import family

with all_compiled():
    greedy.synthesize(family("ring:2", [1e-6], [1e9]), collective("all_gather", 2), 1)
compile_for(["float32"])
