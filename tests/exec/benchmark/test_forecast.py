"""Forecasts: their parts are what is predicted, and they name links, ports and memory."""

from dataclasses import replace
from itertools import permutations

import pytest
from sample_schedules import ring_all_reduce

from exec.benchmark.run_forecast import forecast
from probes.link_costs import HostMemory
from synth.collective import collective
from synth.compiler.lowering import lower
from synth.methods import direct
from synth.network import Link, build
from synth.networks.families import family
from synth.prediction.run_time import predicted_s

RING = lower(ring_all_reduce(4))


def complete(hosts, memory=()):
    links = [Link(a, b, 1e-6, 1e-9) for a, b in permutations(range(4), 2)]
    return replace(build("complete", hosts, links), memory=memory)


def group_s(told, *kinds):
    return sum(part.time_s for part in told.parts if part.kind in kinds)


@pytest.mark.parametrize(
    "network",
    [
        complete(["a", "b", "c", "d"]),
        complete(["a", "a", "b", "b"]),
        complete(["a"] * 4, (HostMemory("a", (1, 1 << 30), (1e-10, 1e-10), (3e-10, 3e-10)),)),
        complete(
            ["a"] * 4,
            (HostMemory("a", (1, 1 << 30), (1e-10,) * 2, (3e-10,) * 2, (2e-9,) * 2, (3e-9,) * 2, 2),),
        ),
        family("switch:4", [1e-6], [1e9]),
    ],
    ids=["hosts", "pairs", "memory", "fetched", "switch"],
)
def test_the_parts_are_the_predicted_time_which_no_bound_exceeds(network):
    told = forecast(RING, network, 1 << 20)
    assert told.time_s == pytest.approx(predicted_s(RING, network, 1 << 20))
    assert sum(part.time_s for part in told.parts) == pytest.approx(told.time_s)
    assert 0 < told.bound_s <= told.schedule_s * (1 + 1e-9)
    assert told.network == network.name


def test_within_a_host_memory_takes_the_time_between_hosts_links_do():
    apart = forecast(RING, complete(["a", "b", "c", "d"]), 1 << 20)
    assert group_s(apart, "link") > 0.9 * apart.time_s
    assert not group_s(apart, "memory")
    together = forecast(RING, complete(["a"] * 4), 1 << 20)
    assert group_s(together, "memory") > 0.9 * together.time_s
    assert not group_s(together, "link", "port")


def test_who_waits_for_a_port_that_another_link_holds_waits_for_the_port():
    network = family("switch:5", [1e-6], [1e9])
    exchange = lower(direct.synthesize(network, collective("all_to_all", 5, 1), 1 << 20))
    told = forecast(exchange, network, 1 << 20)
    named = {part.where for part in told.parts if part.kind == "port"}
    assert named & set(network.ports)
    assert group_s(told, "port") > group_s(told, "link")
