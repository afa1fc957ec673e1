"""Failed parts of a network, in words."""

import pytest

from probes.base.errors import UsageError
from synth.networks.failures import failures_of
from synth.networks.families import family


def test_words_name_ranks_links_and_hosts():
    network = family("rfs:2x2x3", [0.0], [1e9])
    failed = failures_of("rank:7,link:3-4,link:5>6,rank:1-2,host:n0", network)
    assert failed.ranks == (0, 1, 2, 3, 7)
    assert failed.links == ((3, 4), (4, 3), (5, 6))
    for text in ("rank", "rank:x", "rank:3-1", "link:3", "host:nowhere", "7"):
        with pytest.raises(UsageError, match=r"^without: "):
            failures_of(text, network)


def test_a_host_that_does_not_exist_is_answered_by_those_that_do():
    network = family("ring:3", (0.0,), (1e9,))
    with pytest.raises(UsageError, match="has no host 'gpu05'") as refused:
        failures_of("host:gpu05", network)
    assert refused.value.hint == "Its hosts are n0, n1, n2."
