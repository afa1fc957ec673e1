import itertools
from collections import Counter

import pytest
from hypothesis import given, strategies as st

from probes.sampling.rounds import doubling_strides, meetings, rings, waves


@given(st.integers(2, 40))
def test_every_pair_meets_once_in_the_first_round_of_its_links(ranks):
    rounds = rings(ranks)
    met = meetings(rounds)
    assert sorted(pair for one in met for pair in one) == list(itertools.combinations(range(ranks), 2))
    for pairs, one in zip(rounds, met, strict=True):
        assert all(pair in pairs or pair[::-1] in pairs for pair in one)


@given(st.integers(2, 40))
def test_rings_hold_every_ordered_pair_once(ranks):
    links = [pair for one in rings(ranks) for pair in one]
    assert sorted(links) == list(itertools.permutations(range(ranks), 2))
    for one in rings(ranks):
        assert len({src for src, _ in one}) == len({dst for _, dst in one}) == ranks


@given(st.integers(2, 200))
def test_doubling_strides_are_few_go_both_ways_and_reach_every_rank(ranks):
    strides = doubling_strides(ranks)
    assert set(strides) == {ranks - stride for stride in strides}
    assert 1 in strides
    assert len(strides) <= 2 * ranks.bit_length()


@given(
    st.lists(st.sampled_from("abcd"), min_size=2, max_size=16),
    st.fixed_dictionaries({host: st.integers(1, 8) for host in "abcd"}),
)
def test_waves_keep_every_transfer_and_share_no_rank_core_or_nic(host_of, cores_of):
    for round_ in rings(len(host_of)):
        cut = waves(round_, host_of, cores_of)
        assert Counter(pair for wave in cut for pair in wave) == Counter(round_)
        for wave in cut:
            busy = Counter(rank for pair in wave for rank in pair)
            assert set(busy.values()) == {1}
            processes = Counter(host_of[rank] for rank in busy)
            assert all(count <= max(2, cores_of[host]) for host, count in processes.items())
            between = [(host_of[src], host_of[dst]) for src, dst in wave if host_of[src] != host_of[dst]]
            for side in zip(*between, strict=True):
                assert len(side) == len(set(side))


@pytest.mark.parametrize(("cores", "waves_expected"), [(1, 4), (2, 4), (4, 2), (64, 2)])
def test_more_cores_take_fewer_waves(cores, waves_expected):
    assert len(waves(rings(4)[0], ["here"] * 4, {"here": cores})) == waves_expected
