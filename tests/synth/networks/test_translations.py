"""Translations are found in lists of links, and each maps links to links of the same cost."""

from dataclasses import replace

import numpy as np
import pytest

from synth.network import Link, Network, build
from synth.networks.dgx import pod
from synth.networks.families import family
from synth.networks.translations import found_symmetry

SYMMETRIC = [
    ("ring:6", 6),
    ("torus:3x4", 12),
    ("mesh:2x3", 2),
    ("switch:12", 12),
    ("rfs:2x3x4", 24),
    ("dragonfly:5x4", 5),
    ("fat_tree:4x4", 16),
    ("fat_tree:4x4/2", 8),
]


def made(spec: str) -> Network:
    rates = [4e10, 2e10, 1e10] if spec.startswith("rfs") else [4e10, 2e10][: 1 + spec.startswith("dragonfly")]
    return family(spec, [1e-6], rates)


def shuffled(network: Network) -> Network:
    """The same links in another order."""
    order = np.random.default_rng(3).permutation(network.links)
    links = [
        Link(
            int(network.src[row]),
            int(network.dst[row]),
            float(network.alpha_s[row]),
            float(network.beta_s_per_byte[row]),
            tuple(network.ports[port] for port in network.ports_of(row).tolist()),
        )
        for row in order.tolist()
    ]
    return build("shuffled", network.hosts, links)


def assert_translations_are_symmetries(network: Network) -> None:
    found = found_symmetry(network)
    assert found is not None
    assert found.network.problems() == []
    folded = found.network
    shifts = folded.shifts
    row, shift = np.repeat(np.arange(len(folded.src)), len(shifts)), np.tile(shifts, len(folded.src))
    at = found.link[row, shift]
    assert sorted(at.tolist()) == list(range(network.links))
    assert np.array_equal(network.src[at], folded.moved(folded.src[row], shift))
    assert np.array_equal(network.dst[at], folded.moved(folded.dst[row], shift))
    assert np.array_equal(network.alpha_s[at], folded.alpha_s[row])
    assert np.array_equal(network.beta_s_per_byte[at], folded.beta_s_per_byte[row])
    assert np.array_equal(found.orbit[at], row)
    # Two links share a port in the one exactly if they do in the other.
    again = folded.expanded()
    same = [{tuple(sorted(users(one, port))) for port in range(len(one.ports))} for one in (network, again)]
    assert same[0] == same[1]


def users(network: Network, port: int) -> list[tuple[int, int]]:
    rows = network.port_user[network.link_port == port]
    return list(zip(network.src[rows].tolist(), network.dst[rows].tolist(), strict=True))


@pytest.mark.parametrize(("spec", "translations"), SYMMETRIC)
@pytest.mark.parametrize("order", [lambda one: one, shuffled], ids=["as listed", "shuffled"])
def test_translations_of_families(spec, translations, order):
    network = order(made(spec))
    found = found_symmetry(network)
    assert found is not None
    assert found.network.translations == translations
    assert_translations_are_symmetries(network)


@pytest.mark.parametrize(("spec", "translations"), [("dgx-a100:2", 16), ("dgx-1:4", 8), ("mi250:2", 4)])
def test_translations_of_machines(spec, translations):
    network = pod(spec)
    found = found_symmetry(network)
    assert found is not None
    assert found.network.translations == translations
    assert_translations_are_symmetries(network)


def test_ports_that_stay_where_they_are_end_a_symmetry():
    # Both GPUs of a host send through one NIC: exchanging them moves no NIC, exchanging hosts does.
    links = [
        Link(a, b, 1e-6, 1e-10, (f"out {a // 2}", f"in {b // 2}"))
        for a in range(6)
        for b in range(6)
        if a // 2 != b // 2
    ]
    network = build("pairs", [f"h{rank // 2}" for rank in range(6)], links)
    found = found_symmetry(network)
    assert found is not None
    assert found.network.translations == 3
    assert_translations_are_symmetries(network)


def test_what_no_translation_maps_to_itself_has_none():
    assert found_symmetry(made("mesh:3x5")) is None
    switch = made("switch:9")
    beta = switch.beta_s_per_byte.copy()
    beta[(switch.src == 4) | (switch.dst == 4)] *= 2
    assert found_symmetry(replace(switch, beta_s_per_byte=beta)) is None
    assert found_symmetry(replace(made("switch:9"), queues=True)) is None
