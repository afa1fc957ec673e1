"""Changes between two acceptances: which culprits are new, gone or there still, and what became slower."""

from dataclasses import replace

import pytest
from certificates import CABLE, GOVERNOR, HOSTS, SLOT, STAGES, TRUNK, WHOLE, accepted, certificates, refused
from hypothesis import given

from exec.acceptance import changes


def test_culprits_are_matched_by_kind_and_part():
    before = replace(accepted(), culprits=(CABLE, GOVERNOR))
    now = replace(refused(), culprits=(replace(CABLE, text="worse", severity="remark"), SLOT))
    found = changes(before, now)
    assert [one.part for one in found.new] == [SLOT.part]
    assert [one.text for one in found.standing] == ["worse"]
    assert found.gone == (GOVERNOR,)
    assert (found.verdict_before, found.verdict) == ("accepted", "refused")
    # The same part with another fault is another culprit.
    other = changes(before, replace(now, culprits=(replace(CABLE, kind="ingress"),)))
    assert (len(other.new), other.standing) == (1, ())


def test_a_culprit_on_a_host_that_took_no_part_is_not_gone():
    before = replace(accepted(), culprits=(CABLE, TRUNK, GOVERNOR))
    found = changes(before, replace(accepted(), tested=HOSTS[:6]))
    assert found.untested == (CABLE, TRUNK)
    assert found.gone == (GOVERNOR,)
    assert found.hosts_gone == HOSTS[6:]
    assert changes(replace(before, tested=HOSTS[:6]), before).hosts_new == HOSTS[6:]


def test_another_number_of_ranks_is_a_change():
    before = accepted()
    found = changes(before, replace(before, ranks=before.ranks - 1))
    assert (found.ranks_before - found.ranks, found.none) == (1, False)


@pytest.mark.parametrize(
    ("times", "slower", "faster"),
    [(1.0, 0, 0), (1.04, 0, 0), (1.06, 1, 0), (0.96, 0, 0), (0.94, 0, 1)],
)
def test_collectives_count_beyond_five_percent(times, slower, faster):
    row = WHOLE[0]
    before = replace(accepted(), whole=(row,))
    found = changes(before, replace(accepted(), whole=(replace(row, time_s=times * row.time_s),)))
    assert (len(found.slower), len(found.faster)) == (slower, faster)
    for one in (*found.slower, *found.faster):
        assert one.ratio == pytest.approx(times)


def test_only_rows_of_the_same_collective_size_and_library_are_compared():
    row = WHOLE[0]
    for other in (
        replace(row, library="mpi", time_s=1.0),
        replace(row, size_bytes=8, time_s=1.0),
        replace(row, collective="broadcast", time_s=1.0),
        replace(row, time_s=0.0),
    ):
        found = changes(replace(accepted(), whole=(row,)), replace(accepted(), whole=(other,)))
        assert (found.slower, found.faster) == ((), ())


def test_a_stage_that_was_not_done_again_is_named():
    before = replace(accepted(), stages=STAGES)
    now = replace(accepted(), stages=(STAGES[0], replace(STAGES[1], done=False)))
    assert changes(before, now).stages_missing == ("links", "whole")
    assert changes(now, before).stages_missing == ()


@given(certificates())
def test_a_certificate_beside_itself_has_no_changes(certificate):
    found = changes(certificate, certificate)
    assert found.none
    assert (found.new, found.gone, found.untested) == ((), (), ())
    assert found.standing == certificate.culprits


@given(certificates(), certificates())
def test_each_culprit_is_told_once_and_both_ways_mirror_each_other(before, now):
    found, back = changes(before, now), changes(now, before)
    assert sorted(map(repr, (*found.new, *found.standing))) == sorted(map(repr, now.culprits))
    left = {repr(one) for one in (*found.gone, *found.untested)}
    assert left <= {repr(one) for one in before.culprits}
    assert left == {repr(one) for one in back.new}
    assert (found.hosts_new, found.hosts_gone) == (back.hosts_gone, back.hosts_new)


def test_unreliable_times_are_not_compared_and_other_sizes_are_named():
    row = WHOLE[0]
    crowded = replace(GOVERNOR, kind="crowded")
    before = replace(accepted(), whole=(row, replace(row, size_bytes=4 << 20)), culprits=(crowded,))
    slow = replace(row, time_s=2 * row.time_s)
    now = replace(accepted(), whole=(slow, replace(row, size_bytes=16 << 20)))
    found = changes(before, now)
    assert (found.slower, found.faster, found.unreliable) == ((), (), True)
    assert (found.sizes_now_only, found.sizes_before_only) == ((16 << 20,), (4 << 20,))
    sure = changes(replace(before, culprits=()), now)
    assert len(sure.slower) == 1 and not sure.unreliable
    assert not changes(now, now).sizes_now_only
