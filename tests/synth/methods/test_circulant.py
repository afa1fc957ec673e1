"""Reductions and broadcasts on circulant graphs: rounds, ports, and how near the bound a slow rank comes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from probes.base.columns import floats
from synth import Request, synthesize
from synth.bounds.lower_bounds import bounds
from synth.check.schedule import check
from synth.collective import Collective
from synth.errors import NotApplicableError
from synth.methods import circulant
from synth.networks.families import family
from synth.schedules import COPY, REDUCE
from synth.simulation.schedule import replay

SIZE_BYTES = 64 << 20


def one_slow(ranks, share, slow=0):
    even = family(f"switch:{ranks}", [5e-6], [12.5e9])
    of_slow = (even.src == slow) | (even.dst == slow)
    return replace(
        even, beta_s_per_byte=floats(np.where(of_slow, even.beta_s_per_byte / share, even.beta_s_per_byte))
    )


def over_bound(network, chunks):
    shape = Collective("all_reduce", network.ranks, chunks)
    found = circulant.synthesize(network, shape, -(-SIZE_BYTES // chunks))
    assert check(found) == []
    whole = Collective("all_reduce", network.ranks, 1)
    return replay(found).time_s / bounds(network, whole, SIZE_BYTES, fluid=True)[0].time_s


@pytest.mark.parametrize("places", [2, 3, 5, 8, 17, 34, 100, 128, 300, 500])
def test_rounds_are_few_and_nobody_does_two_things_at_once(places):
    chunks, count = 120, (places - 1).bit_length()
    sends = circulant._all_reduce(places, chunks)
    assert len(sends.round) == 2 * (places - 1) * chunks
    assert sends.round.max() + 1 <= chunks + 2 * count + 12
    for op in (REDUCE, COPY):
        for end in (sends.src, sends.dst):
            mine = sends.op == op
            busy = np.bincount(sends.round[mine] * places + end[mine])
            assert busy.max() == 1


@pytest.mark.parametrize("places", [3, 8, 34, 100, 500])
def test_who_speaks_with_the_root_has_that_port_for_the_whole_round(places):
    sends = circulant._all_reduce(places, 60)
    for here, there in ((sends.src, sends.dst), (sends.dst, sends.src)):
        port = sends.round * places + here
        with_root = there == 0
        assert not np.isin(port[with_root], port[~with_root]).any()


@pytest.mark.parametrize(
    ("ranks", "share", "most"),
    [(8, 0.5, 1.03), (33, 0.5, 1.04), pytest.param(100, 0.75, 1.03, marks=pytest.mark.long)],
)
def test_one_slow_rank_costs_little_beyond_the_bound(ranks, share, most):
    assert over_bound(one_slow(ranks, share, slow=3), 32 * ranks) <= most


def test_latency_of_many_small_chunks_passes_while_other_chunks_are_sent():
    # A chunk takes a thirtieth of the latency here.
    assert over_bound(one_slow(16, 0.5), 1 << 15) <= 1.02


@pytest.mark.parametrize(("ranks", "share"), [(32, 0.5), pytest.param(128, 0.9, marks=pytest.mark.long)])
def test_auto_comes_near_the_bound_with_many_ranks(ranks, share):
    request = Request(one_slow(ranks, share, slow=ranks - 1), "all_reduce", size_bytes=SIZE_BYTES, jobs=0)
    found = synthesize(request)
    assert found.schedule.method == "circulant"
    assert found.schedule.outcome.time_s <= 1.025 * found.schedule.outcome.binding.time_s
    # Nothing else was worth its time.
    assert {attempt.method for attempt in found.attempts} == {"circulant"}


def test_the_slow_rank_is_found_where_there_is_one():
    assert circulant.slow_rank(one_slow(8, 0.9, slow=5)) == 5
    assert circulant.slow_rank(one_slow(8, 1.0)) is None
    assert circulant.slow_rank(family("ring:8", [1e-6], [1e9])) is None
    two = one_slow(8, 0.5)
    slower = (two.src == 1) | (two.dst == 1)
    beta = floats(np.where(slower, 3 * two.beta_s_per_byte, two.beta_s_per_byte))
    assert circulant.slow_rank(replace(two, beta_s_per_byte=beta)) is None


def test_other_collectives_and_networks_without_all_links_are_refused():
    with pytest.raises(NotApplicableError, match="does not serve"):
        circulant.synthesize(one_slow(8, 0.5), Collective("all_gather", 8, 8), 1024)
    with pytest.raises(NotApplicableError, match="needs a link"):
        circulant.synthesize(family("ring:8", [1e-6], [1e9]), Collective("all_reduce", 8, 8), 1024)
