"""The rule by which the soak calls a figure flat, and what it draws at random."""

import importlib.util
import os
import random
import sys
from pathlib import Path

import pytest

from synth.networks.families import family

SOAK = Path(__file__).resolve().parents[2] / "benchmarks" / "soak.py"


@pytest.fixture(scope="module")
def soak():
    spec = importlib.util.spec_from_file_location("soak", SOAK)
    module = importlib.util.module_from_spec(spec)
    sys.modules["soak"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["soak"]


MOMENTS_S = list(range(0, 7200, 60))


@pytest.mark.parametrize(
    ("values", "unit", "level"),
    [
        ([0.0] * 120, "", True),
        ([400.0 + n for n in range(120)], "MiB", False),
        ([40 + n // 10 for n in range(120)], "", False),
        # A start that fills caches, a few high samples, and noise are no growth.
        ([100.0 + min(n, 20) for n in range(120)], "MiB", True),
        ([400.0 + 300 * (n % 10 == 9) for n in range(120)], "MiB", True),
        ([400.0 + n * 37 % 11 for n in range(120)], "MiB", True),
        ([9.0, 9.0], "", True),
    ],
)
def test_only_what_grows_after_the_first_quarter_is_not_flat(soak, values, unit, level):
    assert soak.flat(MOMENTS_S[: len(values)], values, unit)[0] is level


@pytest.mark.parametrize("most", [2, 4, 24])
def test_a_random_network_is_one_and_has_the_ranks_that_are_told(soak, most):
    for seed in range(40):
        spec, ranks = soak.random_network(random.Random(seed), most)
        if not spec.startswith("dgx"):
            assert family(spec, [1e-6], [1e9]).ranks == ranks


def test_a_part_that_the_next_writer_left_is_found(soak, tmp_path, monkeypatch):
    monkeypatch.setattr(soak, "OUT", tmp_path)
    target, old, new = (tmp_path / n for n in ("a.json", ".a.json.x1.part", ".a.json.x2.part"))
    for path, moment_s in ((target, 1000), (old, 900), (new, 980)):
        path.touch()
        os.utime(path, (moment_s, moment_s))
    assert soak.stale_parts() == [str(old)]
