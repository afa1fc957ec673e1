"""Whoever has the raw samples can fit each alpha and beta again, and sees which were made up."""

from dataclasses import replace

import numpy as np
from drawn_examples import drawn
from hypothesis import given, settings, strategies as st
from measured_clusters import measured_profile, with_samples

from probes.base import floats, ints
from probes.profiling import raw_samples, samples_joined, unproven
from probes.sampling import Samples, Trains


def test_the_costs_of_a_profile_are_those_of_its_samples():
    profile, samples = with_samples(measured_profile(4))
    assert unproven(profile.links, samples) == []
    assert list(samples.problems()) == []


@settings(max_examples=drawn(30))
@given(st.data())
def test_a_changed_cost_of_any_column_is_found(data):
    profile, samples = with_samples(measured_profile(3))
    name = data.draw(
        st.sampled_from([one for one in vars(profile.links) if one.startswith(("alpha", "beta"))])
    )
    row = data.draw(st.integers(0, len(profile.links.src) - 1))
    column = getattr(profile.links, name).copy()
    column[row] *= data.draw(st.sampled_from([0.5, 1.0001, 2.0]))
    [said] = unproven(replace(profile.links, **{name: column}), samples)
    assert f"link {profile.links.src[row]} → {profile.links.dst[row]}: {name} is" in said


def test_a_link_without_samples_is_not_believed():
    profile, samples = with_samples(measured_profile(3))
    left = (samples.src != 1) | (samples.dst != 2) | (samples.quantity == 0)
    fewer = replace(samples, **{name: column[left] for name, column in vars(samples).items()})
    assert unproven(profile.links, fewer) == ["link 1 → 2: no raw samples"]


def test_each_measurement_is_fitted_apart():
    first, before = with_samples(measured_profile(3), seed=1)
    again, now = with_samples(measured_profile(3, seed=5), seed=2)
    both = samples_joined(before, now)
    assert sorted(set(both.run.tolist())) == [0, 1]
    assert unproven(first.links, both) == unproven(again.links, both) == []
    # All in one fit give other costs.
    assert unproven(first.links, replace(both, run=ints([0] * len(both.run))))


def test_pieces_of_ranks_add_up_and_others_are_left_out():
    one = Samples(round_trips_s={(0, 1): [2e-6]}, trains={(1, 0): Trains({8: [1e-6]}, [3e-9])})
    two = Samples(again={(0, 1): Trains({8: [2e-6, 3e-6]})})
    found = raw_samples([one, "a note", two])
    assert sorted(
        zip(found.quantity.tolist(), found.size_bytes.tolist(), found.seconds.tolist(), strict=True)
    ) == [
        (0, 0, 2e-6),
        (1, 0, 3e-9),
        (1, 8, 1e-6),
        (2, 8, 2e-6),
        (2, 8, 3e-6),
    ]
    assert len(raw_samples([]).seconds) == 0


def test_what_no_measurement_gives_is_a_problem():
    _, samples = with_samples(measured_profile(3))
    for name, value in (("quantity", 3), ("run", -1), ("src", -1), ("size_bytes", -8), ("seconds", np.nan)):
        column = getattr(samples, name).copy()
        column[5] = value
        assert [one.partition("[")[0] for one in replace(samples, **{name: column}).problems()] == [name]
    shorter = replace(samples, seconds=floats(samples.seconds[1:]))
    assert "columns of equal length" in next(iter(shorter.problems()))
