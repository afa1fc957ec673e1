from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from given_profile import profile_of_links

from probes.link_costs import SharedPort
from synth.networks.measured import from_profile


@pytest.fixture
def profile():
    alpha, beta = np.array([1e-6, 2e-6, 3e-6]), np.array([1e-9, 2e-9, 4e-9])
    ports = (SharedPort("h0 NIC", (1,), "nic"), SharedPort("rank 0", (0, 1), "process"))
    pairs, betas = [(0, 1), (1, 2), (2, 0)], (1, 2, 2, 1, 2)
    return profile_of_links(["h0", "h0", "h1"], pairs, alpha, beta, betas=betas, residual=alpha, ports=ports)


def test_costs_are_the_capability_of_each_link(profile):
    network = from_profile(profile)
    assert network.problems() == []
    assert network.hosts == ("h0", "h0", "h1")
    assert network.beta_s_per_byte.tolist() == [1e-9, 2e-9, 4e-9]
    assert network.alpha_s.tolist() == [1e-6, 2e-6, 3e-6]


def test_a_port_that_was_measured_itself_has_its_rate(profile):
    assert from_profile(profile).port_beta_s_per_byte.tolist() == []
    trunk = SharedPort("trunk", (1, 2), "measured", 1.5e-9)
    network = from_profile(replace(profile, ports=(*profile.ports, trunk)))
    assert network.problems() == []
    assert network.port_beta_s_per_byte.tolist() == [0.0, 0.0, 1.5e-9]


def test_ports_are_carried_over(profile):
    network = from_profile(profile)
    names = [[network.ports[port] for port in network.ports_of(link)] for link in range(3)]
    assert names == [["rank 0"], ["h0 NIC", "rank 0"], []]
