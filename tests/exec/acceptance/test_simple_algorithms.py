"""Estimates of simple algorithms beside the replay of their schedules."""

import math

import numpy as np
import pytest
from accepted_clusters import cluster_profile
from drawn_examples import drawn
from hypothesis import given, settings, strategies as st

from exec.acceptance import simple_algorithms
from exec.acceptance.simple_algorithms import AlgorithmModel, host_order, simulated_s
from synth.bounds import bounds
from synth.check import check
from synth.collective import KINDS, collective
from synth.errors import NotApplicableError
from synth.networks import family, from_profile, pod
from synth.simulation import replay

SIZES = (1 << 10, 1 << 20, 1 << 28)


def estimates(network, kind, size_bytes):
    return AlgorithmModel(network).estimates(kind, size_bytes, np.arange(network.ranks))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("network", ["dgx-h100:2", "dgx-a100/4x200:2", "fc:5", "switch:4"])
@pytest.mark.parametrize("most_listed", [0, 64])
def test_every_schedule_does_its_collective(kind, network, most_listed, monkeypatch):
    monkeypatch.setattr(simple_algorithms, "_MOST_LISTED", most_listed)
    on = pod(network) if network.startswith("dgx") else family(network, [1e-6], [1e9])
    for one in estimates(on, kind, 1 << 20):
        assert check(one.schedule()) == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_best_estimate_is_near_the_best_replay(kind):
    for size in SIZES:
        network = from_profile(cluster_profile(4, 2))
        best = estimates(network, kind, size)[0].time_s
        assert 0.5 <= best / simulated_s(network, kind, size) <= 1.1


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all"])
def test_no_replay_beats_a_proven_bound(kind):
    network = from_profile(cluster_profile(3, 2, beta=lambda src, dst: 3.0 if src == "gpu2" else 1.0))
    size = 12 << 16
    shape = collective(kind, 6, 12)
    chunk_bytes = size // (shape.total_bytes(1))
    bound = bounds(network, shape, chunk_bytes, fluid=True)[0].time_s
    assert simulated_s(network, kind, size) >= bound * (1 - 1e-6)


def test_a_ring_on_equal_hosts_takes_the_known_time():
    # 2·(N − 1) steps of 1/N of the buffer at 12.5 MB/s (Patarasuk and Yuan).
    network = from_profile(cluster_profile(8))
    expected = 2 * 7 / 8 * (1 << 28) / 12.5e6
    assert simulated_s(network, "all_reduce", 1 << 28) == pytest.approx(expected, rel=0.01)


def test_rings_use_every_nic():
    one, four = (from_profile(cluster_profile(4, 4, nics=nics)) for nics in (1, 4))
    times = [simulated_s(network, "all_reduce", 1 << 28) for network in (one, four)]
    assert times[0] / times[1] == pytest.approx(4, rel=0.05)


def test_small_messages_do_not_go_round():
    network = from_profile(cluster_profile(16))
    assert simulated_s(network, "all_reduce", 8) < 16 * network.alpha_s.max()


def test_ranks_that_are_not_host_after_host_are_put_so():
    hosts = ["a", "b", "a", "c", "b"]
    assert host_order(hosts) == [0, 2, 1, 4, 3]
    scattered = from_profile(cluster_profile(["x", "y", "x", "y"]))
    plain = from_profile(cluster_profile(["x", "x", "y", "y"]))
    assert simulated_s(scattered, "all_reduce", 1 << 24) == pytest.approx(
        simulated_s(plain, "all_reduce", 1 << 24)
    )


def test_a_network_without_the_links_is_refused():
    with pytest.raises(NotApplicableError, match="lacks links"):
        simulated_s(family("ring:5", [1e-6], [1e9]), "all_to_all", 1 << 20)


@settings(max_examples=drawn(30), deadline=None)
@given(
    st.integers(2, 6),
    st.integers(1, 3),
    st.sampled_from(["all_reduce", "all_gather", "broadcast", "all_to_all"]),
    st.data(),
)
def test_slower_links_never_make_an_estimate_shorter(hosts, slots, kind, data):
    factors = data.draw(st.lists(st.sampled_from([1.0, 1.5, 4.0]), min_size=hosts, max_size=hosts))
    size = data.draw(st.sampled_from(SIZES))
    sound, slow = (
        from_profile(cluster_profile(hosts, slots, beta=beta))
        for beta in (lambda src, dst: 1.0, lambda src, dst: factors[int(src[3:]) - 1])
    )
    found = [estimates(network, kind, size)[0] for network in (sound, slow)]
    assert found[0].time_s <= found[1].time_s * (1 + 1e-9)
    assert all(math.isfinite(one.strain_s) and one.strain_s > 0 for one in found)
    assert all(replay(one.schedule()).time_s > 0 for one in found)
