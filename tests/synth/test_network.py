from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from probes.base.columns import floats, ints
from synth.bounds import bounds
from synth.collective import custom
from synth.network import Link, build
from synth.networks.families import family
from synth.rank_sets import of_sets
from synth.schedules import COPY
from synth.scheduling import Sends
from synth.simulation import replay


@pytest.fixture
def shared_nic():
    links = [
        Link(0, 2, 1e-6, 1e-9, ("nic out",)),
        Link(1, 2, 1e-6, 1e-9, ("nic out", "rank 2 in")),
        Link(0, 1, 5e-7, 1e-10),
    ]
    return build("shared", ["a", "a", "b"], links)


def test_ports_are_named_once_and_found_from_both_sides(shared_nic):
    assert shared_nic.ports == ("nic out", "rank 2 in")
    assert [list(shared_nic.ports_of(link)) for link in range(3)] == [[0], [0, 1], []]
    start, links = shared_nic.port_links
    assert list(links[start[0] : start[1]]) == [0, 1]
    assert list(links[start[1] : start[2]]) == [1]


@pytest.mark.parametrize("spec", ["torus:3x4", "switch:5", "dragonfly:3x4", "switch_switch:2x3"])
def test_turned_round_a_network_of_equal_directions_is_the_same(spec):
    network = family(spec, [1e-6], [1e9])
    opposite = network.opposite_links()
    assert (network.src[opposite] == network.dst).all()
    assert (network.dst[opposite] == network.src).all()


def test_a_network_of_unequal_directions_or_ports_has_no_opposite_links(shared_nic):
    assert shared_nic.opposite_links() is None
    there, back = Link(0, 1, 1e-6, 1e-9), Link(1, 0, 1e-6, 2e-9)
    assert build("unequal", ["a", "b"], [there, back]).opposite_links() is None
    # Links that share a port one way do not share it on the way back.
    ends = [(0, 1), (0, 2), (1, 0), (2, 0)]
    links = [Link(src, dst, 1e-6, 1e-9, ("out",) if src == 0 else (f"in {src}",)) for src, dst in ends]
    assert build("shared one way", ["a", "b", "c"], links).opposite_links() is None


def test_sends_keep_links_and_their_ports_busy_and_slow_others_down(shared_nic):
    busy_s = shared_nic.busy_s(ints([0, 1, 1, 2]), 1000)
    assert np.allclose(busy_s, [1e-6, 2e-6, 1e-7, 3e-6, 2e-6])
    slowed = shared_nic.slowed(np.array([0.0, 0.5, 0.25, 1.0, 0.0]))
    assert np.allclose(slowed.beta_s_per_byte, [2e-9, 2e-9, 1.25e-10])


def test_links_are_grouped_by_both_ends(shared_nic):
    start, links = shared_nic.out_links
    assert [list(links[start[r] : start[r + 1]]) for r in range(3)] == [[0, 2], [1], []]
    start, links = shared_nic.in_links
    assert [list(links[start[r] : start[r + 1]]) for r in range(3)] == [[], [2], [0, 1]]


def test_a_link_is_held_for_beta_and_with_tacos_model_for_alpha_too(shared_nic):
    assert np.allclose(shared_nic.hold_s(1000), [1e-6, 1e-6, 1e-7])
    assert np.allclose(replace(shared_nic, hold_alpha=True).hold_s(1000), [2e-6, 2e-6, 6e-7])
    assert np.allclose(shared_nic.travel_s(1000), [2e-6, 2e-6, 6e-7])


def test_transposed_twice_is_the_same(shared_nic):
    twice = shared_nic.transposed().transposed()
    assert list(twice.src) == list(shared_nic.src)
    assert list(twice.dst) == list(shared_nic.dst)


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"dst": ints([2, 2])}, "dst: expected 3"),
        ({"dst": ints([2, 2, 9])}, "dst[2]: there is no rank 9"),
        ({"dst": ints([2, 2, 0])}, "dst[2]: link 2 leads from rank 0 to itself"),
        ({"alpha_s": floats([-1.0, 0, 0])}, "alpha_s[0]: expected a number ≥ 0"),
        ({"beta_s_per_byte": floats([1e-9, 0, 1e-9])}, "beta_s_per_byte[1]: expected a number > 0"),
        ({"beta_s_per_byte": floats([1e-9, np.nan, 1e-9])}, "beta_s_per_byte[1]"),
        ({"link_port": ints([0, 0, 7])}, "link_port[2]: there is no port 7"),
        ({"link_port_start": ints([0, 3, 1, 3])}, "link_port_start: expected to rise"),
        ({"link_port_start": ints([0, 1])}, "link_port_start: expected 4 values"),
    ],
)
def test_problems_name_the_path(shared_nic, change, path):
    assert shared_nic.problems() == []
    assert any(problem.startswith(path) for problem in replace(shared_nic, **change).problems())


def test_a_link_uses_a_port_once_however_often_it_names_it():
    network = build("n", ["a", "b"], [Link(0, 1, 0.0, 1e-9, ("nic", "nic", "bus"))])
    assert network.ports_of(0).tolist() == [0, 1]
    assert network.problems() == []
    twice = replace(network, link_port=ints([1, 1]))
    assert twice.problems() == ["link_port: link 0 names port 1 twice"]


def test_links_whose_times_a_float_cannot_hold_together_are_refused(shared_nic):
    assert shared_nic.problems() == []
    slow = replace(shared_nic, beta_s_per_byte=floats([1e-9, 1e-9, 0.1]))
    assert slow.problems() == []
    slower = replace(shared_nic, beta_s_per_byte=floats([1e-9, 1e-9, 10.0]))
    assert "no link more than 1e+09 times slower" in slower.problems()[0]
    late = replace(shared_nic, alpha_s=floats([1e-6, 1e5, 1e-6]))
    assert "beta_s_per_byte[1]" in late.problems()[0]


def test_a_slow_link_of_a_network_that_queues_leaves_the_rest_of_a_fast_port_to_others() -> None:
    links = [Link(0, 1, 0.0, 1.0, ("out",)), Link(0, 2, 0.0, 4.0, ("out",))]
    plain = build("nic", ["a", "b", "c"], links)
    queued = replace(plain, queues=True)
    assert plain.port_hold_s(2).tolist() == [2.0, 8.0]
    assert queued.port_hold_s(2).tolist() == [2.0, 2.0]
    assert queued.hold_s(2).tolist() == [2.0, 8.0]


def test_a_port_that_was_measured_itself_is_faster_than_its_links() -> None:
    links = [Link(0, 1, 0.0, 2.0, ("out", "cable")), Link(0, 2, 0.0, 4.0, ("out",))]
    plain = replace(build("trunk", ["a", "b", "c"], links), queues=True)
    rated = replace(plain, port_beta_s_per_byte=floats([1.0, 0.0]))
    assert plain.port_s_per_byte.tolist() == [2.0, 2.0]
    assert rated.port_s_per_byte.tolist() == [1.0, 2.0]
    assert rated.port_hold_s(2).tolist() == [2.0, 4.0, 2.0]
    # No slower than what its links have shown.
    late = replace(plain, port_beta_s_per_byte=floats([3.0, 0.0]))
    assert late.port_s_per_byte.tolist() == [2.0, 2.0]
    assert rated.problems() == []
    assert "2 like ports" in replace(plain, port_beta_s_per_byte=floats([1.0])).problems()[0]
    for wrong in (-1.0, float("nan"), float("inf")):
        found = replace(plain, port_beta_s_per_byte=floats([0.0, wrong])).problems()
        assert found == [f"port_beta_s_per_byte[1]: expected 0 or a number > 0, found {wrong}"]


def test_no_bound_is_above_the_time_over_a_link_measured_faster_than_its_port() -> None:
    """The port's time per byte is the median of its links: a bench of groups was refused for 0.05 %."""
    links = [Link(0, to, 1e-5, beta, ("nic",)) for to, beta in ((1, 1.000e-9), (2, 1.004e-9), (3, 1.008e-9))]
    network = replace(build("measured", ["a", "b", "c", "d"], links), queues=True)
    moved = custom(4, of_sets([[0], [0]]), of_sets([[3], [1]]), [False, False])
    sends = Sends()
    sends.add(np.array([0, 1]), np.array([2, 0]), COPY, 0, np.array([0, 1]))
    found = sends.schedule(network, moved, 1 << 20, "by hand")
    assert all(bound.time_s <= replay(found).time_s for bound in bounds(network, moved, 1 << 20))
