"""The kernel's tables say what the program says."""

from dataclasses import replace

import numpy as np
import pytest
from drawn_examples import drawn
from hypothesis import given, settings, strategies as st
from sample_schedules import random_schedule, ring_all_reduce

from exec.cuda.kernel.encode import (
    BLOCK,
    LL128_MOST_BYTES,
    LL_MOST_BYTES,
    SHORT_TILE_BYTES,
    SPARE_SLOTS,
    TILE_BYTES,
    encoded,
    tile_bytes_for,
    wire_protocol_of,
)
from exec.cuda.kernel.rows import DOES, STEP
from exec.program.layout import Layout
from probes.base.columns import ints
from probes.base.errors import DataError
from synth.collective import KINDS
from synth.compiler.lowering import lower


def column(table, name):
    return table.steps[:, STEP.index(name)]


def block(table, name):
    return table.blocks[:, BLOCK.index(name)]


@settings(max_examples=drawn(60))
@given(
    kind=st.sampled_from(KINDS),
    ranks=st.integers(2, 5),
    chunks=st.integers(1, 4),
    count=st.integers(1, 100),
    seed=st.integers(0, 1 << 30),
    itemsize=st.sampled_from([1, 2, 4, 8]),
    tile_bytes=st.sampled_from([16, 100, 1 << 20]),
    spare_slots=st.sampled_from([0, 1, 14]),
)
def test_every_message_that_is_sent_is_received(
    kind, ranks, chunks, count, seed, itemsize, tile_bytes, spare_slots
):
    program = lower(random_schedule(kind, ranks, chunks, seed))
    table = encoded(Layout(program, count), itemsize, tile_bytes=tile_bytes, spare_slots=spare_slots)
    needed = encoded(Layout(program, count), itemsize, tile_bytes=tile_bytes).room
    does, length = column(table, "does"), column(table, "length")
    owner = np.repeat(np.arange(program.threadblocks), block(table, "steps"))
    for fifo in range(len(table.room)):
        sender, receiver = (int(np.flatnonzero(table.fifos[:, end] == fifo)[0]) for end in (0, 1))
        sent = length[(owner == sender) & (does & DOES["sends"] > 0)]
        got = length[(owner == receiver) & (does & DOES["receives"] > 0)]
        np.testing.assert_array_equal(sent, got)
        assert block(table, "sends")[sender] == block(table, "receives")[receiver] == len(sent)
        assert block(table, "room_out")[sender] == block(table, "room_in")[receiver] == table.room[fifo]
        assert needed[fifo] <= table.room[fifo] <= needed[fifo] + spare_slots
        # Slots whose release is not yet published leave as many as the program needs.
        unpublished = block(table, "credit_every")[receiver] - 1
        assert 0 <= unpublished <= table.room[fifo] - needed[fifo]
    assert table.place_bytes % 16 == 0
    assert (table.tiles - 1) * table.tile < table.layout.largest <= table.tiles * table.tile


def test_short_messages_get_more_slots_in_no_more_memory():
    program = lower(ring_all_reduce(2))
    for by in ("Simple", "LL", "LL128"):
        cut = {"tile_bytes": 4096, "spare_slots": SPARE_SLOTS, "wire_protocol": by}
        tables = [encoded(Layout(program, count), 4, **cut) for count in (8, 1024, 2048, 4096)]
        assert [int(table.room.max()) for table in tables] == [16, 4, 2, 2]
        assert [int(block(table, "credit_every").max()) for table in tables] == [8, 2, 1, 1]
        assert all((table.room * table.place_bytes).max() <= 2 * 2 * 4096 for table in tables)


def test_waits_point_at_rows_that_signal():
    program = lower(random_schedule("all_reduce", 4, 3, 11))
    table = encoded(Layout(program, 10), 4)
    waits = np.flatnonzero(column(table, "wait_block") >= 0)
    assert len(waits)
    for row in waits:
        other = int(column(table, "wait_block")[row])
        awaited = int(block(table, "first")[other] + column(table, "wait_step")[row])
        assert column(table, "signals")[awaited] == 1
        mine = int(np.searchsorted(block(table, "first"), row, side="right")) - 1
        assert block(table, "rank")[mine] == block(table, "rank")[other]


def test_blocks_of_a_rank_are_its_threadblocks():
    program = lower(random_schedule("all_to_all", 4, 2, 3))
    table = encoded(Layout(program, 10), 4)
    found = [block(table, "rank")[list(table.blocks_of(rank))] for rank in range(4)]
    assert sum(map(len, found)) == program.threadblocks
    assert all((ranks == rank).all() for rank, ranks in enumerate(found))


def test_a_shared_end_of_a_connection_is_refused():
    program = lower(random_schedule("all_to_all", 3, 2, 3))
    rows = np.flatnonzero(program.tb_rank == 0)
    send = program.tb_send.copy()
    send[rows] = send[send >= 0][0]
    channel = program.tb_channel.copy()
    channel[rows] = 0
    with pytest.raises(DataError, match=r"and rank 0 threadblock \d share one end"):
        encoded(Layout(replace(program, tb_send=ints(send), tb_channel=ints(channel)), 6), 4)


def test_a_copy_moves_twice_what_it_copies():
    table = encoded(Layout(lower(ring_all_reduce(2), fuse=False), 100), 4)
    # Each rank of two sends its half, adds what it received to its other half and the same again, copied.
    received_and_added, sent, received = 3 * 50, 2 * 50, 2 * 50
    assert table.moved_bytes == 2 * 4 * (sent + received_and_added + sent + received)


def test_only_what_asks_for_ll_goes_by_ll():
    program = lower(ring_all_reduce(2))
    found = [wire_protocol_of(replace(program, protocol=name)) for name in ("Simple", "LL128", "LL")]
    assert found == ["Simple", "Simple", "LL"]
    simple, lines, long_lines = (
        encoded(Layout(program, 301), 4, wire_protocol=by) for by in ("Simple", "LL", "LL128")
    )
    assert lines.slices == long_lines.slices == 1
    assert lines.place_bytes == 2 * simple.place_bytes
    assert long_lines.place_bytes == -(-simple.place_bytes // 120) * 128


def test_ll128_is_for_messages_of_middling_size_whose_lines_arrive_whole():
    program = replace(lower(ring_all_reduce(2)), protocol="LL128")
    sizes = (LL_MOST_BYTES, LL_MOST_BYTES + 1, LL128_MOST_BYTES, LL128_MOST_BYTES + 1)
    found = [wire_protocol_of(program, message_bytes=size, whole_lines=True) for size in sizes]
    assert found == ["LL", "LL128", "LL128", "Simple"]
    assert {wire_protocol_of(program, message_bytes=size) for size in sizes} == {"Simple"}


def test_tiles_are_short_where_the_slots_of_long_ones_exceed_the_cache():
    cache_bytes = 50 << 20
    for by, most in (("Simple", 50), ("LL", 25), ("LL128", 46)):
        found = [tile_bytes_for(blocks, cache_bytes, by) for blocks in (1, most, most + 1, 264)]
        assert found == [TILE_BYTES] * 2 + [SHORT_TILE_BYTES] * 2
