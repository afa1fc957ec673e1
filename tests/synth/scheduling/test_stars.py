"""Stars: right on every network of hosts, near the bound on dragonflies, refused elsewhere."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from probes.base.columns import ints
from synth import Request
from synth.check.schedule import check
from synth.collective import collective
from synth.errors import NotApplicableError
from synth.networks.families import family
from synth.portfolio.plain import bounds_of
from synth.portfolio.request import cut
from synth.scheduling import stars
from synth.simulation.schedule import replay


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter", "all_reduce"])
@pytest.mark.parametrize("spec", ["dragonfly:3x4", "dragonfly:9x4", "switch_switch:2x4"])
@pytest.mark.parametrize("chunks", [1, 3])
def test_every_schedule_is_proven_and_sends_nothing_twice(kind, spec, chunks):
    network = family(spec, [5e-7], [40e9, 20e9])
    shape = collective(kind, network.ranks, chunks * (network.ranks if kind == "all_reduce" else 1))
    schedule = stars.synthesize(network, shape, 1000)
    assert check(schedule) == []
    table = np.stack((schedule.chunk, network.dst[schedule.link], schedule.op))
    assert kind != "all_gather" or np.unique(table, axis=1).shape[1] == schedule.sends


def test_a_mutated_schedule_is_refused():
    network = family("dragonfly:3x4", [5e-7], [40e9, 20e9])
    schedule = stars.synthesize(network, collective("all_gather", 12, 1), 1000)
    for row in range(schedule.sends):
        kept = np.arange(schedule.sends) != row
        less = replace(
            schedule,
            chunk=ints(schedule.chunk[kept]),
            link=ints(schedule.link[kept]),
            op=schedule.op[kept],
        )
        assert check(less) != []


@pytest.mark.parametrize(("kind", "percent"), [("all_gather", 96), ("all_reduce", 96)])
def test_a_dragonfly_comes_near_the_bound(kind, percent):
    network = family("dragonfly:9x8", [5e-7], [400e9, 200e9])
    asked = Request(network, kind, size_bytes=256 << 20)
    shape, chunk_bytes = cut(asked, 2)
    assert stars.suits(network, shape)
    time_s = replay(stars.synthesize(network, shape, chunk_bytes)).time_s
    assert 100 * max(bound.time_s for bound in bounds_of(asked)) / time_s > percent


@pytest.mark.parametrize("spec", ["torus:4x4", "rfs:2x4x2"])
def test_hosts_must_be_linked(spec):
    network = family(spec, [5e-7], [40e9, 40e9] if spec.startswith("torus") else [40e9, 20e9, 10e9])
    with pytest.raises(NotApplicableError, match="stars"):
        stars.synthesize(network, collective("all_gather", network.ranks, 1), 1000)


def test_one_host_has_no_other_to_send_to():
    network = replace(family("ring:3", [5e-7], [40e9]), hosts=("h0",) * 3)
    with pytest.raises(NotApplicableError, match="several hosts"):
        stars.synthesize(network, collective("all_gather", 3, 1), 1000)
