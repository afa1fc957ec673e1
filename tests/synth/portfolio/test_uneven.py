"""The cuts of the blocks of uneven collectives, and requests that are refused at once."""

import numpy as np
import pytest

from probes.base.errors import UsageError
from synth.check import check
from synth.networks import family
from synth.portfolio.attempts import least_sends
from synth.portfolio.request import Request
from synth.portfolio.uneven import uneven_request
from synth.redistribution import MeshLayout, Moved, redistribution
from synth.stages import synthesize


def test_many_ranks_get_coarser_chunks_so_that_a_search_ends():
    sizes = (1e9 / (1.0 + np.arange(512)) ** 1.2).astype(int)
    for kind in ("all_gather", "reduce_scatter"):
        one, size_bytes = uneven_request(kind, 512, sizes)
        assert 512 * 511 <= least_sends(one.sets) <= 1 << 20
        assert size_bytes >= sizes.sum()


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter"])
def test_more_ranks_than_a_search_can_serve_are_refused_at_once(kind):
    with pytest.raises(UsageError, match=r"on 1100 ranks takes at least 1208900 sends"):
        uneven_request(kind, 1100, np.full(1100, 4096))
    one, _ = uneven_request("gather", 1100, np.full(1100, 4096))
    assert one.sets.blocks.kind == "gather"


def planned(network, request, size_bytes):
    """The schedule that is found, proven right."""
    found = synthesize(Request(network, "custom", size_bytes=size_bytes, collectives=(request,), jobs=0))
    assert check(found.listed) == []
    return found.listed


@pytest.mark.parametrize(("kind", "ranks"), [("gather", 33), ("scatter", 33), ("all_to_all", 33)])
def test_on_many_ranks_other_ranks_relay(kind, ranks):
    blocks = ranks**2 if kind == "all_to_all" else ranks
    sizes = [(at % 3) << 12 for at in range(blocks)]
    found = planned(family(f"ring:{ranks}", [1e-6], [25e9]), *uneven_request(kind, ranks, sizes))
    assert found.outcome.percent_of_optimal > 75


def test_a_giant_block_between_two_of_many_ranks_goes_over_all_others():
    sizes = [4 << 20 if at == 1 else 1 << 10 for at in range(33 * 33)]
    request = uneven_request("all_to_all", 33, sizes, chunk_bytes=1 << 16)
    found = planned(family("fully_connected:33", [1e-6], [25e9]), *request)
    assert found.outcome.time_s < 0.2 * (4 << 20) / 25e9


def test_few_chunks_do_not_end_the_search_for_relays_to_one_rank():
    source, target = MeshLayout(tuple(range(16, 36)), (20,), (None,)), MeshLayout((1,), (1,), (None,))
    plan = redistribution(36, [Moved((2048, 1024), 2, source, target, 1)])
    found = planned(family("dragonfly:6x6", [1e-6, 1e-6], [25e9, 25e9]), *plan.request())
    # Data enters the target over all links of its group.
    assert len(set(found.link[found.network.dst[found.link] == 1].tolist())) >= 5
