"""The cuts of the blocks of uneven collectives, and requests that are refused at once."""

import numpy as np
import pytest

from probes.base.errors import UsageError
from synth.portfolio.attempts import least_sends
from synth.portfolio.uneven import uneven_request


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
