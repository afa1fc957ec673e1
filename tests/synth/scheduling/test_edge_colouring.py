"""Edge colouring: a period as long as the busiest port needs, proven by the judge of periods; or none."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from probes.base.columns import bytes_of, floats, ints
from synth import Request, synthesize
from synth.check.schedule import check
from synth.collective import collective
from synth.networks.families import family
from synth.schedules import COPY, PeriodicSchedule, Schedule
from synth.scheduling.edge_colouring import coloured
from synth.scheduling.modulo_scheduling import least_period_s


def _random_broadcasts(network, chunks, random):
    """Each chunk over a tree of its own, from rank 0 to all, as sends of one period."""
    link_of = {(src, dst): at for at, (src, dst) in enumerate(zip(network.src, network.dst, strict=True))}
    rows = []
    for chunk in range(chunks):
        order = [0, *random.permutation(np.arange(1, network.ranks)).tolist()]
        for at in range(1, network.ranks):
            rows.append((chunk, link_of[order[int(random.integers(at))], order[at]]))
    chunk, link = np.array(rows).T
    shape = collective("broadcast", network.ranks, chunks)
    ops = bytes_of(np.full(len(rows), COPY))
    return Schedule(network, shape, 1000, "test", 0, ints(chunk), ints(link), ops)


@given(
    ranks=st.integers(2, 7),
    chunks=st.integers(1, 12),
    alpha_s=st.sampled_from([0.0, 5e-7, 3e-6]),
    seed=st.integers(0, 999),
)
def test_no_port_needs_longer_than_its_sends_whatever_they_are(ranks, chunks, alpha_s, seed):
    network = family(f"switch:{ranks}", [alpha_s], [1e9])
    body = _random_broadcasts(network, chunks, np.random.default_rng(seed))
    start_s, period_s = coloured(body)
    assert period_s == pytest.approx(least_period_s(body))
    order = np.argsort(start_s, kind="stable")
    columns = ints(body.chunk[order]), ints(body.link[order]), bytes_of(body.op[order])
    made = PeriodicSchedule(
        network, body.collective, 1000, "test", 0, 5, period_s, *columns, floats(start_s[order])
    )
    assert check(made) == []


@pytest.mark.parametrize("spec", ["mesh:3x3", "fat_tree:2x2/2"])
def test_where_sends_hold_something_else_there_is_none(spec):
    network = family(spec, [5e-7], [1e9])
    body = synthesize(Request(network, "all_reduce", size_bytes=1 << 20, method="periodic")).schedule.body
    assert coloured(body) is None


@pytest.mark.parametrize("spec", ["switch:8", "switch:16"])
def test_switches_are_used_to_the_full(spec):
    network = family(spec, [5e-7], [50e9])
    made = synthesize(Request(network, "all_reduce", size_bytes=1 << 28, method="periodic")).schedule
    assert made.outcome.percent_of_optimal >= 99
