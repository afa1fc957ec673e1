"""A schedule proven for a range of sizes is right at every size in it; a refused one is wrong at some."""

from dataclasses import replace

import numpy as np
import pytest
from drawn_examples import drawn
from hypothesis import HealthCheck, given, settings, strategies as st
from sample_networks import NAMED, named, networks

from probes.base.columns import bytes_of, ints
from synth import Request, synthesize
from synth.check.schedule import check
from synth.check.size_range import Unsettled, check_sizes
from synth.collective import Collective, collective
from synth.methods import greedy
from synth.network import Link, build
from synth.portfolio.attempts import METHODS
from synth.schedules import REDUCE, Range, Schedule, Selection, UnsizedSchedule

MOST_BYTES = 1 << 24


def _sizes(least, most):
    return sorted({least, most, *np.geomspace(least, most, 40).astype(int).tolist()})


def _mutated(schedule, data):
    """Sends repeated, left out and moved."""
    rows = list(range(schedule.sends))
    for _ in range(data.draw(st.integers(0, 3))):
        at, to = (data.draw(st.integers(0, len(rows) - 1)) for _ in range(2))
        match data.draw(st.sampled_from(("repeat", "move", "drop"))):
            case "repeat":
                rows.insert(to, rows[at])
            case "move":
                rows.insert(to, rows.pop(at))
            case _:
                rows = rows[:at] + rows[at + 1 :] or rows
    return replace(
        schedule,
        chunk=ints(schedule.chunk[rows]),
        link=ints(schedule.link[rows]),
        op=bytes_of(schedule.op[rows]),
    )


@settings(max_examples=drawn(60), suppress_health_check=[HealthCheck.too_slow])
@given(networks(5), st.sampled_from(("all_reduce", "reduce_scatter", "reduce")), st.integers(1, 2), st.data())
def test_a_range_is_proven_only_where_every_size_is_right(network, kind, chunks, data):
    shape = collective(kind, network.ranks, chunks)
    schedule = _mutated(greedy.synthesize(network, shape, 1000), data)
    schedule = replace(schedule, chunk_bytes=1)
    wrong = check_sizes(schedule, MOST_BYTES, check)
    if isinstance(wrong, tuple) and not isinstance(wrong, Unsettled):
        size, findings = wrong
        assert findings and check(replace(schedule, chunk_bytes=size)) == findings
    else:
        for size in _sizes(1, MOST_BYTES):
            assert check(replace(schedule, chunk_bytes=size)) == []
        assert wrong is None


# The two kinds by turns, on every third network; the largest take 20 times as long as the others.
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param(
            name,
            ("all_reduce", "reduce_scatter")[at % 2],
            marks=[pytest.mark.long] * (named(name).ranks > 8 or at % 3 != 1),
        )
        for at, name in enumerate(NAMED)
    ],
)
def test_what_methods_make_is_proven_for_all_sizes(name, kind):
    for method in METHODS:
        if method in ("ilp", "forest", "adapcc") or METHODS[method].own_size:
            continue
        try:
            # Programs that are stopped early give schedules that serve here as well.
            request = Request(named(name), kind, size_bytes=1 << 16, method=method, time_limit_s=0.25)
            made = synthesize(request).schedule
        except Exception as error:
            assert "UsageError" in type(error).__name__ or "NotApplicable" in type(error).__name__
            continue
        if not isinstance(made, Schedule):
            continue
        assert check_sizes(replace(made, chunk_bytes=1), 1 << 40, check) is None, method


def _reduce(links, most_bytes):
    """Return the verdict on these links, used one after the other for a reduction to rank 2."""
    network = build("hand", ["h"] * (1 + max(max(link.src, link.dst) for link in links)), links)
    shape = Collective("reduce", network.ranks, 1, root=2)
    rows = range(len(links))
    schedule = Schedule(
        network, shape, 1, "hand", 0, ints([0] * len(rows)), ints(rows), bytes_of([REDUCE] * len(rows))
    )
    return schedule, check_sizes(schedule, most_bytes, check)


# Seconds a byte of a link where only the start takes time.
NONE = 1e-15


def test_an_order_that_turns_round_inside_the_range_is_found():
    # Rank 1's message takes longer the larger it is; rank 0 adds to it after 100 us, and no step waits.
    links = [Link(1, 2, 0, 1e-9), Link(0, 1, 1e-4, NONE), Link(0, 3, 0, NONE), Link(3, 2, 2e-4, NONE)]
    schedule, found = _reduce(links, 1 << 20)
    assert found is not None and found[0] > 100_000 and "changes at rank 1" in found[1][0]
    assert _reduce(links, 90_000)[1] is None
    order = UnsizedSchedule("hand", 0, schedule.collective, schedule.chunk, schedule.link, schedule.op)
    selection = Selection(schedule.network, (order,), (Range(1, 1 << 20, 0),), ())
    assert any("changes at rank 1" in finding for finding in check(selection))
    assert check(replace(selection, ranges=(Range(1, 90_000, 0),))) == []


def test_what_is_wrong_in_the_middle_of_a_range_alone_is_found():
    # Rank 1 sends until 50 us + 2 ns a byte; what changes its chunk comes after 100 us and after 3 ns a byte.
    links = [Link(3, 1, 5e-5, NONE), Link(1, 2, 0, 2e-9), Link(4, 0, 1e-4, NONE), Link(5, 0, 0, 3e-9)]
    links += [Link(0, 1, 0, NONE), Link(0, 2, 0, NONE)]
    schedule, found = _reduce(links, 1 << 20)
    assert check(schedule) == check(replace(schedule, chunk_bytes=1 << 20)) == []
    assert found is not None and 25_000 <= found[0] <= 50_000 and "changes at rank 1" in found[1][0]
    assert _reduce(links, 24_000)[1] is None
    assert check_sizes(replace(schedule, chunk_bytes=51_000), 1 << 20, check) is None
