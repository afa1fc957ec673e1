"""Trust in predicted gains."""

import pytest
from hypothesis import given, strategies as st

from exec.adaptive.messages import CollectiveCall
from exec.adaptive.swap_guard import SwapGuard, SwapTrial

ONE = CollectiveCall("all_reduce", "sum", "float32", 100, 4)
OTHER = CollectiveCall("all_reduce", "sum", "float32", 200, 4)


def _guard(*seconds: float, request: CollectiveCall = ONE) -> SwapGuard:
    guard = SwapGuard()
    for each in seconds:
        guard.ran(request, each)
    return guard


def test_a_prediction_has_to_explain_the_runs() -> None:
    guard = _guard(1.0, 1.0, 1.0)
    assert guard.explains({ONE: 1.0}) and guard.explains({ONE: 0.3})
    assert not guard.explains({ONE: 2.0})
    # The network has changed meanwhile: once most of the last runs are as slow, that is what happened.
    guard.ran(ONE, 2.0)
    assert not guard.explains({ONE: 2.0})
    guard.ran(ONE, 2.1)
    assert guard.explains({ONE: 2.0})


def test_what_has_not_run_yet_does_not_count() -> None:
    assert SwapGuard().explains({ONE: 1e9})
    assert _guard(1.0, 1.0).explains({ONE: 1e9})
    assert _guard(1.0, 1.0, 1.0).explains({ONE: 1.0, OTHER: 1e9})


def test_a_swap_is_judged_once_by_the_middle_of_three_runs() -> None:
    guard = _guard(1.0, 1.0, 5.0)
    guard.swapped()
    guard.ran(ONE, 9.0)
    guard.ran(ONE, 0.5)
    assert guard.judged() is None
    guard.ran(ONE, 0.6)
    assert guard.judged() == SwapTrial(1.0, 0.6)
    guard.ran(ONE, 9.0)
    assert guard.judged() is None


def test_runs_beside_a_search_are_no_trial() -> None:
    guard = _guard(1.0, 1.0, 1.0)
    guard.swapped()
    for seconds, disturbed in ((9.0, True), (1.0, False), (9.0, True), (1.0, False), (1.0, False)):
        assert guard.judged() is None
        guard.ran(ONE, seconds, disturbed=disturbed)
    assert guard.judged() == SwapTrial(1.0, 1.0)


def test_runs_that_are_no_slower_are_no_failure() -> None:
    assert not SwapTrial(1.0, 1.05).has_failed and not SwapTrial(1.0, 0.5).has_failed
    assert SwapTrial(1.0, 1.2).has_failed
    assert SwapTrial(1.2, 1.0).has_gained and not SwapTrial(1.05, 1.0).has_gained


def test_several_requests_are_judged_together() -> None:
    guard = _guard(1.0, 1.0, 1.0)
    for _ in range(3):
        guard.ran(OTHER, 10.0)
    guard.swapped()
    for _ in range(3):
        guard.ran(ONE, 2.0)
        guard.ran(OTHER, 5.0)
    # One of them has become slower, all together are faster.
    assert guard.judged() == SwapTrial(11.0, 7.0)


def test_what_ran_only_after_a_swap_tells_nothing_of_it() -> None:
    guard = _guard(1.0, 1.0, 1.0)
    guard.swapped()
    for _ in range(3):
        guard.ran(OTHER, 10.0)
    assert guard.judged() is None
    for _ in range(3):
        guard.ran(ONE, 1.0)
    assert guard.judged() == SwapTrial(1.0, 1.0)


def test_other_members_begin_anew() -> None:
    guard = _guard(1.0, 1.0, 1.0)
    guard.swapped()
    guard.begin_anew()
    for _ in range(3):
        guard.ran(ONE, 9.0)
    assert guard.judged() is None


def test_a_trial_without_a_verdict_ends() -> None:
    guard = _guard(1.0, 1.0, 1.0)
    assert not guard.on_trial
    guard.swapped()
    for _ in range(30):
        assert guard.on_trial
        # The previous schedule does not run any more.
        guard.ran(OTHER, 10.0)
        assert guard.judged() is None
    assert not guard.on_trial


def test_a_request_that_ran_once_does_not_hold_up_the_verdict_for_ever() -> None:
    guard = _guard(1.0, 1.0, 1.0)
    guard.swapped()
    guard.ran(OTHER, 10.0)
    for _ in range(29):
        assert guard.judged() is None
        guard.ran(ONE, 2.0)
    assert guard.judged() == SwapTrial(1.0, 2.0)
    assert not guard.on_trial


def test_runs_beside_a_search_are_a_trial_where_there_are_no_others() -> None:
    guard = _guard(1.0, 1.0, 1.0)
    guard.swapped()
    for _ in range(29):
        guard.ran(ONE, 9.0, disturbed=True)
        assert guard.judged() is None
    guard.ran(ONE, 2.0, disturbed=True)
    assert guard.judged() == SwapTrial(1.0, 9.0)
    assert not guard.on_trial


def test_runs_beside_a_search_explain_what_was_measured() -> None:
    guard = _guard(1.0, 1.0, 1.0)
    guard.swapped()
    for _ in range(2):
        guard.ran(ONE, 3.0, disturbed=True)
    assert guard.explains({ONE: 4.0})


def test_a_swap_on_trial_may_be_followed_by_another() -> None:
    guard = _guard(1.0, 1.0, 1.0)
    guard.swapped()
    for _ in range(2):
        guard.ran(ONE, 3.0)
    assert guard.judged() is None
    guard.swapped()
    for _ in range(3):
        guard.ran(ONE, 2.0)
    assert guard.judged() == SwapTrial(3.0, 2.0)


def test_unexplained_once_is_chance_and_twice_in_a_row_a_wrong_prediction() -> None:
    guard = SwapGuard()
    guard.unexplained(0.0)
    assert guard.caution(0.0) == 1
    guard.explained()
    guard.unexplained(1.0)
    assert guard.caution(1.0) == 1
    guard.unexplained(2.0)
    assert guard.caution(2.0) == 2
    guard.unexplained(3.0)
    assert guard.caution(3.0) == 4


def test_other_members_do_not_continue_a_row() -> None:
    guard = SwapGuard()
    guard.unexplained(0.0)
    guard.begin_anew()
    guard.unexplained(1.0)
    assert guard.caution(1.0) == 1


def test_a_prediction_that_came_true_takes_back_the_oldest_doubt() -> None:
    guard = SwapGuard()
    guard.trust(0.0)
    assert guard.caution(0.0) == 1
    for at_s in (0.0, 500.0, 550.0):
        guard.doubt(at_s)
    guard.trust(560.0)
    assert guard.caution(560.0) == 4
    # The doubt of 0 s is gone; the remaining ones count from 500 s on.
    assert guard.caution(1090.0) == 4
    # A doubt too old to count cannot be taken back.
    guard.trust(1120.0)
    assert guard.caution(1120.0) == 1


@given(st.lists(st.floats(0, 3000), max_size=12).map(sorted), st.floats(0, 3000))
def test_each_doubt_of_the_last_ten_minutes_asks_for_the_square(at_s: list[float], more_s: float) -> None:
    guard = SwapGuard()
    for each in at_s:
        guard.doubt(each)
    now_s = max(at_s, default=0.0) + more_s
    late = min(6, sum(now_s - each <= 600 for each in at_s))
    assert guard.caution(now_s) == 2**late
    assert guard.least_gain(now_s) == pytest.approx(1.03 ** (2**late))
