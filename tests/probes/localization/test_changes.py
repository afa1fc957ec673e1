"""Parts whose links changed alike, on simulated clusters before and after a fault."""

from __future__ import annotations

import numpy as np
import pytest
from drawn_examples import drawn
from faulty_profile import Faulty
from hypothesis import given, settings, strategies as st

from probes.base import Floats, Mask
from probes.localization import ChangedPart, changed_parts
from probes.localization.links import tables_of

LEAST, ALLOWED = 0.04, 0.08


def parts_of(
    net: Faulty, slow: Mask, level: float = 0.5, allowed: float = ALLOWED, seed: int = 1
) -> list[ChangedPart]:
    """Return the changed parts where the links ``slow`` carry ``level`` of what they did."""
    profile = net.profile()
    factor = np.where(slow, level, 1.0)[profile.links.src, profile.links.dst]
    rng = np.random.default_rng(seed)
    slower: Floats = -np.log(factor) + rng.normal(0, 0.01, len(factor))
    rows = np.arange(len(factor))
    return changed_parts(profile, rows, slower, np.full(len(factor), allowed), LEAST, LEAST)


def names(parts: list[ChangedPart]) -> list[str]:
    return [part.name for part in parts]


@pytest.mark.parametrize(
    ("sources", "targets", "name"),
    [
        ([2], list(range(6)), "host gpu3 sends (5 of 5 links)"),
        (list(range(6)), [2], "host gpu3 receives (5 of 5 links)"),
        (list(range(6)), list(range(6)), "all 30 links"),
        ([0, 1], [2, 3, 4, 5], "trunk gpu1,gpu2 – gpu3,gpu4,gpu5,gpu6 (8 of 8 links)"),
    ],
)
def test_the_fewest_parts_are_named(sources: list[int], targets: list[int], name: str) -> None:
    net = Faulty(6)
    if name.startswith("trunk"):
        net.racks([0, 1], [2, 3, 4, 5])
    (part,) = parts_of(net, net.between(sources, targets))
    assert part.name == name


def test_a_host_that_is_slow_both_ways_is_one_part() -> None:
    net = Faulty(6)
    (part,) = parts_of(net, net.of(4))
    assert part.name == "host gpu5 sends and receives (10 of 10 links)"


def test_a_pair_of_hosts_of_several_ranks_is_one_part() -> None:
    net = Faulty(5, 2)
    (part,) = parts_of(net, net.between([0], [3]) | net.between([3], [0]))
    assert part.name == "gpu1 ↔ gpu4 (8 of 8 links)"


def test_a_rank_of_a_single_host_is_named() -> None:
    net = Faulty(1, 6)
    slow = np.zeros((6, 6), dtype=np.bool_)
    slow[2] = True
    assert names(parts_of(net, slow)) == ["gpu1 rank 2 sends (5 of 5 links)"]


def test_all_links_count_from_a_smaller_change_on_than_a_single_one() -> None:
    net = Faulty(6)
    every = net.between(list(range(6)), list(range(6)))
    assert names(parts_of(net, every, level=0.94)) == ["all 30 links"]
    assert parts_of(net, net.between([1], [4]), level=0.94) == []


@settings(max_examples=drawn(30), deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 8), st.integers(1, 2))
def test_noise_is_no_part(seed: int, hosts: int, ranks: int) -> None:
    net = Faulty(hosts, ranks)
    assert parts_of(net, np.zeros_like(net.rate, dtype=np.bool_), seed=seed) == []


@settings(max_examples=drawn(30), deadline=None)
@given(st.integers(3, 7), st.integers(0, 2**32 - 1), st.data())
def test_no_link_is_in_two_parts_and_none_is_sound(hosts: int, seed: int, data: st.DataObject) -> None:
    net = Faulty(hosts)
    slow = np.zeros((hosts, hosts), dtype=np.bool_)
    bad = data.draw(st.sets(st.integers(0, hosts - 1), max_size=hosts - 1))
    for host in bad:
        slow |= net.of(host) if seed % 2 else net.between([host], list(range(hosts)))
    found = np.concatenate(
        [part.at for part in parts_of(net, slow, seed=seed)] or [np.zeros(0, dtype=np.int64)]
    )
    assert len(set(found.tolist())) == len(found)
    links = net.profile().links
    assert slow[links.src[found], links.dst[found]].all()


def test_links_that_were_inferred_count_only_if_they_are_wanted() -> None:
    net = Faulty(3)
    net.flags[0, 1] = "inferred"
    assert [len(tables_of(net.profile(), every=every)[0]) for every in (False, True)] == [5, 6]
