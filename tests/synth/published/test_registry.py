"""Published algorithms are found by name, and are loaded when they are called."""

import subprocess
import sys

import pytest

from synth import Request
from synth.collective import collective
from synth.networks.families import family
from synth.portfolio.attempts import METHODS, plans
from synth.published import synthesizer

NAMES = ("adapcc_published", "taccl", "tacos_ilp_published", "tacos_published")


@pytest.mark.parametrize("name", NAMES)
def test_each_name_gives_its_method(name):
    network = family("fully_connected:3", [1e-6], [1e9])
    made = synthesizer(name)(network, collective("broadcast", 3, 4), 1 << 20, time_limit_s=600)
    assert made.method == name


def test_auto_tries_none_of_them():
    request = Request(family("mesh:2x3", [0.5e-6], [100e9]), "all_gather", chunk_bytes=1 << 20, chunks=1)
    assert METHODS.keys() >= set(NAMES)
    assert {plan.name for plan in plans(request)}.isdisjoint(NAMES)


def test_the_portfolio_loads_none_of_them():
    script = (
        "import sys, synth.portfolio.attempts; print([m for m in sys.modules if 'synth.published.' in m])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
