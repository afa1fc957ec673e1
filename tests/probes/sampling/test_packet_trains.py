import numpy as np
import pytest
from hypothesis import given, strategies as st

from probes.sampling.packet_trains import HURRY, Trains, is_enough, judged, plan, spacings

EAGER = 64 << 10


@given(st.floats(1e-12, 1e-4))
def test_a_plan_stays_on_one_side_of_the_eager_limit_and_within_reach(seconds_per_byte):
    trains = plan(seconds_per_byte, 0.04)
    sizes = [train.size_bytes for train in trains]
    assert len(sizes) >= 2
    assert sizes == sorted(set(sizes))
    assert max(sizes) < EAGER or min(sizes) > EAGER
    assert all(train.messages >= 5 and train.times >= 1 for train in trains)


def test_a_slower_link_gets_no_larger_messages():
    largest = [max(t.size_bytes for t in plan(cost, 0.04)) for cost in np.geomspace(1e-11, 1e-5, 40)]
    assert largest == sorted(largest, reverse=True)
    assert largest[0] >= 4 << 20


@pytest.mark.parametrize("mbit", [20, 40, 100, 200])
def test_a_train_of_a_slow_link_takes_as_long_however_slow_it_is(mbit):
    for train in plan(8e-6 / mbit, 0.04):
        assert 0.02 < train.size_bytes * train.messages * 8e-6 / mbit < 0.06
        assert train.calmly


def test_a_train_lasts_for_many_round_trips():
    near, far = (sum(train.messages for train in plan(1e-7, 0.04, (), trip_s)) for trip_s in (0, 9e-3))
    assert far > 1.9 * near
    assert all(train.size_bytes * train.messages <= 4 << 20 for train in plan(1e-7, 0.04, (), 10.0))


@pytest.mark.parametrize("clump", [2, 3, 8, 15.9])
def test_a_train_that_arrives_in_clumps_keeps_its_pace(clump):
    sent = np.arange(1, 129) * 1e-3
    arrived = np.ceil(np.arange(1, 129) / clump - 1e-9) * clump * 1e-3
    assert (arrived >= sent - 1e-9).all()
    assert spacings(arrived, buffered=True) == pytest.approx([1e-3], rel=0.02)


def test_a_plan_keeps_the_sizes_asked_for_that_a_link_can_carry():
    asked = (32 << 10, 1 << 20, 16 << 20)
    assert [train.size_bytes for train in plan(1e-9, 0.1, asked)] == list(asked)
    assert [train.size_bytes for train in plan(1e-6, 0.1, asked)] == [32 << 10]
    assert [train.size_bytes for train in plan(1e-6, 0.1, asked[1:])] == [1 << 20]


@pytest.mark.parametrize("buffered", [False, True])
def test_spacings_of_an_even_train_are_its_spacing(buffered):
    arrived = np.arange(16) * 2e-3 + 5
    assert spacings(arrived, buffered=buffered) == pytest.approx([2e-3] * (1 if buffered else 11))


def test_the_burst_at_the_head_of_a_train_does_not_count():
    arrived = np.concatenate((np.full(4, 1.0), 1.0 + np.arange(1, 13)))
    assert spacings(arrived, buffered=True) == pytest.approx([1.0])


def test_small_and_large_messages_are_never_in_one_fit():
    fast = Trains({1024: [1e-6], 131072: [1e-4], 262144: [2e-4]})
    assert sorted(fast.comparable()) == [131072, 262144]
    slow = Trains({1024: [1e-4], 131072: [1e-5], 262144: [2e-2]})
    assert sorted(slow.comparable()) == [1024]
    assert sorted(Trains({1024: [1e-6], 2048: [2e-6]}).comparable()) == [1024, 2048]


@pytest.mark.parametrize(
    ("paces", "in_company", "alone"),
    [
        ([1.0], False, False),
        ([1.0, 1.01], True, True),
        ([1.0, 1.5], False, False),
        ([1.0, 1.1, 1.0, 1.1], False, False),
        ([1.0, 1.5, 1.0, 1.5], True, False),
    ],
)
def test_trains_that_agree_are_enough_and_in_company_those_that_wait_for_others(paces, in_company, alone):
    found = Trains({1000: [1000 * pace for pace in paces]})
    assert is_enough(found, alone=False) == in_company
    assert is_enough(found, alone=True) == alone


def test_samples_of_two_passes_are_put_together():
    total = Trains({1024: [1.0]})
    total.add(Trains({1024: [2.0], 2048: [3.0]}))
    assert total.seconds == {1024: [1.0, 2.0], 2048: [3.0]}


@given(
    stalls=st.lists(st.tuples(st.integers(0, 127), st.floats(0, 2)), max_size=4),
    release_s=st.floats(1e-7, 1e-4),
)
def test_whatever_holds_a_train_back_it_is_never_believed_to_be_faster_than_its_bytes(stalls, release_s):
    sent = np.arange(1, 129) * 1e-3
    for at, seconds in stalls:
        sent[at:] = np.maximum(sent[at:], sent[at] + seconds + release_s * np.arange(len(sent) - at))
    found = judged(4096, sent, 0.0)
    assert found.whole_s_per_byte[0] >= 1e-3 / 4096 * 0.999
    for values in found.seconds.values():
        assert min(values) >= HURRY * 1e-3 * 0.999


def test_a_train_that_came_in_a_burst_tells_only_how_long_it_took():
    burst = judged(8192, 0.5 + np.arange(1, 65) * 1e-6, 0.0)
    assert burst.seconds == {}
    assert burst.whole_s_per_byte == pytest.approx([0.5 / 64 / 8192], rel=1e-3)
    assert judged(8192, np.arange(1, 65) * 1e-3, 0.0).seconds == {8192: pytest.approx([1e-3])}


def test_of_small_and_large_messages_the_time_of_whole_trains_says_which_count():
    burst = Trains({1024: [1e-4], 131072: [1e-5], 262144: [2e-5]}, [1e-7, 1.2e-7])
    assert sorted(burst.comparable()) == [1024]


def test_the_pace_of_a_train_that_arrives_in_clumps_is_no_slower_than_the_whole_train():
    # Forty messages are read as fast as they are copied; then eight arrive one by one.
    arrived = 1e-3 + np.cumsum([1e-6] * 40 + [1e-3] * 8)
    [pace_s] = judged(4096, arrived, 0.0).seconds[4096]
    assert pace_s <= float(arrived[-1]) / 36 < spacings(arrived, buffered=True)[0]
