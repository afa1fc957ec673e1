"""Compile, while the rest is being installed, the loops that a first `make run` would wait for.

They need no more of what is installed than NumPy, SciPy and numba. Nothing depends on it: who finds no
machine code compiles it.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from exec.mpi.interpreter import compile_for
from synth.collective import collective
from synth.kernels.compiled import all_compiled
from synth.methods import greedy
from synth.networks.families import family

with all_compiled():
    greedy.synthesize(family("ring:2", [1e-6], [1e9]), collective("all_gather", 2), 1)
compile_for(["float32"])
