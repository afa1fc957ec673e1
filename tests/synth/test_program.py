from assembler import Assembler

from synth.collective import collective
from synth.memory_layout import cells_of, side_of
from synth.program import INPUT, OPS, OUTPUT


def small():
    build = Assembler(collective("broadcast", 2, 1))
    send = build.threadblock(0, send=1, channel=3)
    build.step(send, OPS.index("s"), src=(INPUT, 0))
    recv = build.threadblock(1, recv=0, channel=3)
    build.step(recv, OPS.index("r"), dst=(OUTPUT, 0))
    build.step(build.threadblock(0), OPS.index("cpy"), src=(INPUT, 0), dst=(OUTPUT, 0))
    return build.program("small", [0, 0])


def test_counts_and_names():
    program = small()
    assert (program.ranks, program.steps, program.threadblocks) == (2, 3, 3)
    assert (program.threadblocks_max, program.channels) == (2, 4)
    assert [program.place(step) for step in range(3)] == [
        "rank 0 threadblock 0 step 0 (s)",
        "rank 0 threadblock 1 step 0 (cpy)",
        "rank 1 threadblock 0 step 0 (r)",
    ]


def test_sides_agree_with_the_collective():
    for kind in ("all_gather", "reduce_scatter", "all_reduce", "broadcast", "reduce", "all_to_all"):
        wanted = collective(kind, 3, 2, root=1)
        for sets, slots_of in ((wanted.sources, wanted.input_slots), (wanted.targets, wanted.output_slots)):
            side = side_of(sets, 3)
            for rank in range(3):
                slots = slots_of(rank)
                mine = side.rank == rank
                assert slots[side.chunk[mine]].tolist() == side.slot[mine].tolist()
                assert side.sizes[rank] == mine.sum() == (slots >= 0).sum()


def test_in_place_shares_what_holds_the_same_chunk():
    memory = cells_of(small(), in_place=True)
    assert memory.touched(0, OUTPUT, 0, 1) == memory.touched(0, INPUT, 0, 1)
    assert memory.name(memory.touched(1, OUTPUT, 0, 1)[0]) == "o[0]"
    apart = cells_of(small(), in_place=False)
    assert apart.touched(0, OUTPUT, 0, 1) != apart.touched(0, INPUT, 0, 1)
