"""Phase 2 goes along finer pieces only where these take longer to send than to start."""

import pytest

from exec.relays.late_bases import PIECES, late_bases
from synth.networks.families import family
from synth.stages import synthesize


@pytest.mark.parametrize(("alpha_s", "pieces"), [(1e-6, True), (1e-3, False)])
def test_pieces_that_take_longer_to_start_than_to_send_are_no_base(alpha_s, pieces):
    # Chunks of 256 KiB at 1 GB/s: their pieces take 16 us.
    schedule = synthesize(family("fully_connected:4", [alpha_s], [1e9]), "all_gather", 1 << 20).schedule
    found = late_bases(schedule)
    assert found[0] is schedule
    assert any(one.sends == PIECES * schedule.sends for one in found[1:-1]) == pieces
