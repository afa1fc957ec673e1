"""Lost ranks are started again later each time, and no more often than was asked for."""

from exec.launcher.restarts import Restarts


def test_a_rank_that_answers_is_started_again_as_often_as_was_asked_for():
    restarts, now_s, starts = Restarts(2), 0.0, []
    for _ in range(4):
        restarts.lost(1, now_s)
        assert restarts.due(now_s) == []
        now_s += 100.0
        starts += restarts.due(now_s)
        if restarts.awaited:
            restarts.answered(1)
    assert starts == [(1, 1), (1, 2)]


def test_without_leave_nobody_is_started_again():
    restarts = Restarts(0)
    restarts.lost(1, 0.0)
    assert restarts.due(1e6) == []


def test_a_spare_is_started_once_more_than_others_are_again():
    restarts, starts = Restarts(1, [2]), []
    for now_s in range(0, 1000, 100):
        for rank in (1, 2):
            restarts.lost(rank, float(now_s))
        for rank, start in restarts.due(now_s + 99.0):
            restarts.answered(rank)
            starts.append((rank, start))
    assert starts == [(1, 1), (2, 1), (2, 2)]


def test_a_host_that_does_not_answer_is_tried_ever_more_seldom_but_always():
    restarts, now_s, waits_s = Restarts(1), 0.0, []
    restarts.lost(3, now_s)
    for start in range(1, 12):
        tried_s = now_s
        while not (due := restarts.due(now_s)):
            now_s += 0.5
        assert due == [(3, start)]
        waits_s.append(now_s - tried_s)
        assert restarts.awaits(3, start) and not restarts.awaits(3, start - 1)
        now_s += 60.0
        assert restarts.overdue(now_s) == [3]
        restarts.lost(3, now_s)
        assert not restarts.awaits(3, start)
    assert waits_s[0] == 1.0 and max(waits_s) <= 120.0
    assert waits_s == sorted(waits_s)
