"""Requests: the ranks that take part once something has failed."""

import pytest

from probes.base.errors import UsageError
from synth import CollectiveRequest, Request
from synth.networks.failures import Failures, failures_of
from synth.networks.families import family


def left_of(ranks, failed, *collectives):
    network = family(f"fully_connected:{ranks}", [0.0], [1e9])
    asked = Request(network, collectives[0].kind, collectives=collectives, without=Failures(failed))
    return [(one.kind, one.root, one.members) for one in asked.surviving().asked]


def test_survivors_take_part():
    assert left_of(5, (1, 3), CollectiveRequest("all_gather")) == [("all_gather", 0, (0, 2, 4))]
    assert left_of(4, (0,), CollectiveRequest("broadcast")) == [("broadcast", 1, (1, 2, 3))]
    with pytest.raises(UsageError, match=r"^root: rank 2 has failed"):
        left_of(4, (2,), CollectiveRequest("broadcast", 2))
    with pytest.raises(UsageError, match=r"^without: no rank"):
        left_of(
            4, (2, 3), CollectiveRequest("all_gather", 0, (0, 1)), CollectiveRequest("all_reduce", 2, (2, 3))
        )


def test_the_network_loses_what_failed_and_is_named_after_it():
    network = family("ring:4", [0.0], [1e9])
    left = Request(network, "all_gather", without=failures_of("link:0-1", network)).surviving().network
    assert (left.name, left.links) == ("ring:4 without link:0-1", 6)
    assert str(Failures((2,), ((0, 1),))) == "rank:2,link:0>1"
