"""The latencies, link rates and times of NCCL's protocols."""

import numpy as np
import pytest

from synth.compiler.lowering import lower
from synth.methods import ring
from synth.network import Link, build
from synth.networks.dgx import pod
from synth.simulation.protocols import PROTOCOLS, as_used_by, time_by


def test_a_protocol_takes_its_part_of_a_link():
    network = pod("dgx-a100")
    slower = as_used_by(network, "LL")
    assert slower.beta_s_per_byte == pytest.approx(2 * network.beta_s_per_byte)
    assert slower.alpha_s == pytest.approx(PROTOCOLS["LL"].hop_s[0])


def test_what_a_link_takes_beyond_a_hop_no_protocol_saves():
    far = build("far", ["a", "b"], [Link(0, 1, 50e-6, 1e-9)])
    assert as_used_by(far, "Simple").alpha_s == pytest.approx([50e-6])
    assert as_used_by(far, "LL").alpha_s == pytest.approx([2.7e-6 + 36e-6])


@pytest.mark.parametrize("machine", ["dgx-a100", "dgx-1"])
def test_short_messages_are_soonest_by_ll_and_long_ones_by_simple(machine):
    network = pod(machine)
    from synth.collective import collective

    program = lower(ring.synthesize(network, collective("all_reduce", 8, 8), 1 << 10))
    fastest = [
        min(PROTOCOLS, key=lambda name: time_by(name, program, network, size)) for size in (1 << 10, 1 << 30)
    ]
    assert fastest == ["LL", "Simple"]
    times = [time_by("LL128", program, network, 1 << power) for power in range(10, 31, 4)]
    assert (np.diff(times) > 0).all()
