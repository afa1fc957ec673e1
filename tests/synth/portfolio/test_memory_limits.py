"""Memory: what this process has held, and what no machine holds."""

import os

import numpy as np
import pytest

from probes.base.errors import UnavailableError
from synth import Request, synthesize
from synth.networks.families import family
from synth.portfolio.memory_limits import machine_bytes, peak_bytes, peak_of, require_memory


def test_the_peak_covers_what_was_held():
    held = np.ones(30 << 20, dtype=np.uint8)
    assert held.nbytes < peak_of(os.getpid()) <= machine_bytes()
    assert peak_bytes() >= held.nbytes


def test_nobody_holds_nothing():
    assert peak_of(2**22 + 1) == 0


def test_more_than_the_machine_has_is_refused_before_it_begins():
    require_memory(1000)
    with pytest.raises(UnavailableError, match=r"at least .* sends take .* GB; this machine has"):
        require_memory(machine_bytes())
    ring = family("ring:64", [1e-6], [1e9])
    with pytest.raises(UnavailableError, match="this machine has"):
        synthesize(Request(ring, "all_reduce", chunk_bytes=1, chunks=machine_bytes() // 2000, method="ring"))
