"""The MPI executor must give what the interpreter gives, bit for bit, and nobody may wait for ever."""

import functools
import pickle
import re
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from assembler import Assembler
from fixed_order import drawn_inputs, fixed_sum, reproducible_program
from hypothesis import given, strategies as st
from joined import run_joined, run_over_mpi
from sample_schedules import random_schedule, ring_all_reduce
from threaded_ranks import ThreadedRanks

from exec.mpi import connections, interpreter
from exec.mpi.encode import tiling_of
from exec.mpi.plan import MpiPlan
from exec.mpi.shared_memory import shared_array
from exec.mpi.traffic import traffic
from exec.program import expected_output
from exec.program.dtypes import DTYPES, REDOPS, dtype_of
from exec.program.interpreter import interpret
from exec.program.layout import Layout
from exec.program.move import moves
from probes.base.columns import floats
from probes.base.errors import UsageError
from synth.check.program import judge
from synth.collective import KINDS, collective
from synth.compiler.lowering import lower
from synth.lang import chunk, program as algorithm
from synth.lang.algorithm_file import compiled_algorithm
from synth.methods import nvls
from synth.msccl.read import read_xml
from synth.networks.dgx import pod
from synth.networks.families import family
from synth.program import INPUT, OPS, OUTPUT, SCRATCH

ROOT = Path(__file__).parents[3]
# Runs on every rank: jobs from a pickle, compared with what the interpreter gave. The first ranks do a job of
# fewer, while the others sleep.
WORKER = """
import pickle, sys, time
import numpy as np
from exec.program.layout import Layout
from exec.mpi import connections
from exec.mpi.plan import MpiPlan
from exec.mpi.shared_memory import shared_array
from probes.live.host_identity import host_key
from synth.program import INPUT, OUTPUT

def work(comm, cases, per_host, *sizes):
    "Rows of what was wrong, in a world of so many ranks of a host, as the plans see it."
    wrong = []
    connections.host_key = lambda: (*host_key(), rank // per_host)
    connections.TILE_BYTES, connections._WIRE_TILE_BYTES = sizes
    for number, (program, count, inputs, redop, in_place, outputs) in enumerate(cases):
        layout, dtype = Layout(program, count), inputs[rank].dtype
        # Out of private memory all messages are copied by their receivers, some, or none.
        connections.FETCHED_BYTES = (1, 2048, 1 << 40)[number % 3]
        # Some ranks have their buffers in the window, some have not.
        shared = (number >> rank) & 1
        make = shared_array if shared else np.zeros
        if in_place:
            total, first, last = layout.in_place(rank)
            whole = make(total, dtype)
            send, recv = whole[first], whole[last]
        else:
            send = make(layout.elements(rank, INPUT), dtype)
            recv = make(layout.elements(rank, OUTPUT), dtype)
        plan = MpiPlan(layout, comm, send, recv, redop)
        for repetition in range(3):
            recv.view(np.uint8)[:] = 99
            send[:] = inputs[rank]
            plan.run()
            if recv.tobytes() != outputs[rank].tobytes():
                wrong.append((rank, sizes, number, repetition, program.name, count, dtype, redop, in_place))
            if not in_place and send.tobytes() != inputs[rank].tobytes():
                wrong.append((rank, sizes, number, "input"))
        plan.close()
    return wrong

with open(sys.argv[4], "rb") as stream:
    jobs = pickle.load(stream)
wrong = {name: [] for name in jobs}
for name, (ranks, cases, worlds) in jobs.items():
    if ranks != size:
        least = comm.Split(0 if rank < ranks else 1, rank)
    if rank < ranks:
        for world in worlds:
            wrong[name] += work(comm if ranks == size else least, cases, *world)
    if ranks != size:
        over = comm.Ibarrier()
        while not over.Test():
            time.sleep(0.001)
every = comm.gather(wrong)
if rank == 0:
    with open(sys.argv[5], "wb") as stream:
        pickle.dump({name: [row for one in every for row in one[name]] for name in jobs}, stream)
"""
# Bytes of a tile on one host, and over wires.
TILES = (128 << 10, 4 << 20)


def on_ranks(folder, jobs, ranks, wires="mpi"):
    """Do all jobs by one start of the ranks; return the rows of what was wrong, by the names of jobs.

    A job is (its ranks, cases, worlds), a world the number of ranks of a host, as the plans alone see it, and
    the bytes of a tile on one host and over wires.
    """
    (folder / "jobs").write_bytes(pickle.dumps(jobs))
    arguments = [str(folder / "jobs"), str(folder / "wrong")]
    run = run_joined if wires == "sockets" else run_over_mpi
    run(folder, ranks, WORKER, *arguments)
    return pickle.loads((folder / "wrong").read_bytes())


def exchange(ops, scratch=0):
    """Two ranks that send the same slot that they receive into: a program that needs buffering."""
    build = Assembler(collective("all_reduce", 2, 1))
    for me, peer in ((0, 1), (1, 0)):
        tb = build.threadblock(me, peer, peer)
        for op, src, dst in ops:
            build.step(tb, OPS.index(op), src or (0, -1), dst or (0, -1))
    return build.program("exchange", [scratch, scratch])


EXCHANGES = [
    exchange([("s", (INPUT, 0), None), ("rrc", (INPUT, 0), (OUTPUT, 0))]),
    exchange(
        [
            ("cpy", (INPUT, 0), (SCRATCH, 0)),
            ("s", (SCRATCH, 0), None),
            ("r", None, (SCRATCH, 0)),
            ("cpy", (INPUT, 0), (OUTPUT, 0)),
            ("re", (SCRATCH, 0), (OUTPUT, 0)),
        ],
        scratch=1,
    ),
]


def fused_ring():
    """Three ranks, one threadblock each, every fused operation."""
    build = Assembler(collective("all_reduce", 3, 1))
    steps = [
        (0, 1, 2, "s", (INPUT, 0), (0, -1)),
        (1, 2, 0, "rrs", (INPUT, 0), (0, -1)),
        (2, 0, 1, "rrcs", (INPUT, 0), (OUTPUT, 0)),
        (0, 1, 2, "rcs", (0, -1), (OUTPUT, 0)),
        (1, 2, 0, "r", (0, -1), (OUTPUT, 0)),
    ]
    for rank, send, recv, op, src, dst in steps:
        build.step(build.threadblock(rank, send, recv), OPS.index(op), src, dst)
    return build.program("fused ring", [0, 0, 0])


def wide_broadcast():
    """One message of three chunks, relayed through scratch: uneven chunks must be taken apart."""
    build = Assembler(collective("broadcast", 3, 3))
    build.step(build.threadblock(0, send=1), OPS.index("s"), src=(INPUT, 0), count=3)
    build.step(build.threadblock(0), OPS.index("cpy"), src=(INPUT, 0), dst=(OUTPUT, 0), count=3)
    relay = build.threadblock(1, send=2, recv=0)
    build.step(relay, OPS.index("r"), dst=(SCRATCH, 0), count=3)
    build.step(relay, OPS.index("s"), src=(SCRATCH, 0), count=3)
    build.step(relay, OPS.index("cpy"), src=(SCRATCH, 0), dst=(OUTPUT, 0), count=3)
    build.step(build.threadblock(2, recv=1), OPS.index("r"), dst=(OUTPUT, 0), count=3)
    return build.program("wide broadcast", [0, 3, 0])


def programs(ranks):
    kinds = [kind for kind in KINDS if ranks > 1 or kind != "all_to_next"]
    found = [lower(random_schedule(kind, ranks, 2, seed)) for seed, kind in enumerate(kinds)]
    if ranks > 1:
        found.append(lower(ring_all_reduce(ranks, 2)))
    if ranks == 2:
        found += EXCHANGES
    if ranks == 3:
        found += [fused_ring(), wide_broadcast()]
    return found


def case(program, count, dtype, redop, in_place, seed=None):
    """A program with the inputs of the benchmark or random ones, and what the interpreter makes of them."""
    layout = Layout(program, count)
    inputs = [expected_output.given(layout, rank, dtype, redop) for rank in range(program.ranks)]
    if seed is not None:
        random = np.random.default_rng(seed)
        inputs = [random.standard_normal(given.size).astype(dtype) for given in inputs]
    return (program, count, inputs, redop, in_place, interpret(program, inputs, redop, in_place=in_place))


# Map each number of ranks to worlds: (ranks of a host, bytes of a tile on one host, and over wires). They
# make whole messages, many tiles, and slots that are used again.
WORLDS = {
    1: [(1, 128 << 10, 4 << 20)],
    2: [(2, 4096, 4096), (1, 4096, 16384)],
    3: [(3, 4096, 4096), (1, 4096, 1 << 20)],
    4: [(2, 4096, 8192), (4, 64, 4096)],
}


@functools.cache
def cases_of(ranks):
    """Every program by several sizes, types, operators and protocols."""
    cases = []
    # The largest is beyond every eager limit, so that a send ends only once it is received.
    for number, program in enumerate(programs(ranks)):
        assert judge(program) == []
        for count in (9_000, (1, 7)[number % 2]):
            redop, dtype = (
                REDOPS[(number + count) % 5],
                dtype_of(("float32", "bfloat16", "int64")[number % 3]),
            )
            labelled = replace(program, protocol=("Simple", "LL", "LL128")[(number + count) % 3])
            if (number + count) % 4 == 0:
                labelled = replace(labelled, tb_bytes_per_s=floats(np.full(program.threadblocks, 50e6)))
            cases += [
                case(labelled, count, dtype, redop, in_place)
                for in_place in (False, True)[: 1 + program.in_place]
            ]
    return cases


def every_type_and_operator():
    """All pairs, each out of place or in place: each type and each operator in both."""
    program = lower(ring_all_reduce(2, 2))
    return [
        case(program, 3001, dtype_of(dtype), redop, (row + column) % 2 == 1)
        for row, dtype in enumerate(DTYPES)
        for column, redop in enumerate(REDOPS)
    ]


def long_operands():
    """Operands out of private memory that are longer than what is fetched at once."""
    program = lower(ring_all_reduce(2, 1))
    return [case(program, 100_003, dtype_of("float32"), "sum", in_place, seed=1) for in_place in (0, 1)]


@functools.cache
def reproducible_cases():
    """A fixed order of sums gives the bits of its definition."""
    specs = ("switch:4", "torus:2x2")
    programs = [reproducible_program(family(spec, [1e-6], [1e9]), size_bytes=4096) for spec in specs]
    cases = []
    for number, dtype in enumerate(("float32", "bfloat16", "float16")):
        inputs = drawn_inputs(4, 3001, dtype)
        outputs = [fixed_sum(inputs)] * 4
        # Each type out of place by one program and in place by the other.
        cases += [
            (programs[(number + in_place) % 2], 3001, inputs, "sum", in_place, outputs) for in_place in (0, 1)
        ]
    return cases


@functools.cache
def all_programs():
    """Every example and every correct program of others, by its number of ranks."""
    found = {}
    for path in sorted((ROOT / "examples").glob("*.py")):
        program, _ = compiled_algorithm(str(path))
        found.setdefault(program.ranks, []).append(program)
    for path in sorted((ROOT.parent / "shared" / "data" / "programs").glob("*.xml")):
        program = read_xml(path.read_bytes(), path.name)
        # A custom program has no definition of its results.
        if program.ranks <= 16 and not program.input_chunks and not judge(program):
            found.setdefault(program.ranks, []).append(program)
    return found


def drawn_cases(ranks):
    """Examples and programs of others on random data, each by a small and a large size."""
    return [
        case(program, count, dtype_of("float32"), "sum", in_place, seed=number)
        for number, program in enumerate(all_programs().get(ranks, []))
        for count, in_place in ((1 + number, number % 2 == 1), (6000, number % 2 == 0))
        if (program.in_place if in_place else program.out_of_place)
    ]


# Jobs of ranks over MPI: the number of ranks, cases and worlds.
JOBS = {
    "programs of 1": lambda: (1, cases_of(1), WORLDS[1]),
    "programs of 2": lambda: (2, cases_of(2), WORLDS[2]),
    "programs of 3": lambda: (3, cases_of(3), WORLDS[3]),
    "programs of 4": lambda: (4, cases_of(4), WORLDS[4]),
    "every type and operator": lambda: (2, every_type_and_operator(), [(2, *TILES)]),
    "long operands": lambda: (2, long_operands(), [(2, 512 << 10, TILES[1])]),
    "fixed order of sums": lambda: (4, reproducible_cases(), [(2, *TILES)]),
    "examples and programs of others": lambda: (4, drawn_cases(4), [(2, 8192, TILES[1])]),
}


@pytest.fixture(scope="module")
def wrong_over_mpi(tmp_path_factory):
    """Return the rows of what was wrong, by job: four ranks do all, as a start takes longer than most."""
    return on_ranks(tmp_path_factory.mktemp("jobs"), {name: make() for name, make in JOBS.items()}, 4)


@pytest.mark.mpi
@pytest.mark.parametrize("job", JOBS)
def test_ranks_over_mpi_give_what_the_interpreter_gives(job, wrong_over_mpi):
    assert wrong_over_mpi[job] == []


@pytest.mark.mpi
@pytest.mark.parametrize(("ranks", "world"), [(2, 1), (3, 1), (4, 0)])
def test_ranks_over_sockets_do_so_too(ranks, world, tmp_path):
    cases = cases_of(ranks)
    if ranks == 4:
        # Every program remains: in place by the large size, out of place by the small one.
        cases = [one for one in cases if (one[1] > 1000) == one[4]]
    jobs = {"programs": (ranks, cases, [WORLDS[ranks][world]])}
    if ranks == 4:
        jobs["fixed order of sums"] = 4, reproducible_cases(), [(2, *TILES)]
    assert on_ranks(tmp_path, jobs, ranks, "sockets") == {name: [] for name in jobs}


@pytest.mark.mpi
def test_examples_and_programs_of_others_of_eight_ranks_are_right_on_random_data(tmp_path):
    # Each program runs one of its two cases.
    cases = [one for number, one in enumerate(drawn_cases(8)) if number % 8 in (0, 3, 5, 6)]
    assert {(False, False), (True, True)} <= {(one[1] > 1000, one[4]) for one in cases}
    assert on_ranks(tmp_path, {"8": (8, cases, [(8, 8192, TILES[1])])}, 8, "sockets") == {"8": []}


FORBIDDEN = """
import numpy as np
from exec.mpi import connections, interpreter
from exec.mpi.plan import MpiPlan
from exec.program.layout import Layout
from sample_schedules import ring_all_reduce
from synth.compiler.lowering import lower

allowed = sys.argv[4] == "allowed"
if not allowed and rank == 1:
    connections.fetched_word = lambda pid, address: None
send, recv = np.full(1 << 16, rank + 1.0), np.zeros(1 << 16)
plan = MpiPlan(Layout(lower(ring_all_reduce(2, 1)), 1 << 16), comm, send, recv)
fetched = plan._tables.pieces[:, interpreter.PID] > 0
plan.run()
print(fetched.any(), (recv == 3).all())
"""


@pytest.mark.mpi
@pytest.mark.parametrize("allowed", [True, False])
def test_where_the_system_forbids_it_nobody_reads_the_memory_of_others(tmp_path, allowed):
    for said in run_joined(tmp_path, 2, FORBIDDEN, "allowed" if allowed else "forbidden"):
        assert said.strip() == f"{allowed} True"


DIES = """
import os, signal, threading, time
from pathlib import Path
import numpy as np
from exec.mpi.plan import MpiPlan
from exec.program.layout import Layout
from probes.base.errors import LostRankError
from sample_schedules import ring_all_reduce
from synth.compiler.lowering import lower

send, recv = np.full(3 << 16, 1.0), np.zeros(3 << 16)
plan = MpiPlan(Layout(lower(ring_all_reduce(3)), 3 << 16), comm, send, recv)
comm.Barrier()
if rank == 2:
    # By then its first message has long been announced, and nobody has read it.
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGKILL)).start()
else:
    time.sleep(2)
try:
    plan.run()
except LostRankError as error:
    print(error.message, flush=True)
    plan.abandon()
told = Path(sys.argv[3], "told")
if rank == 0:
    told.touch()
# Else rank 0 may hear first that rank 1 is gone.
while not told.exists():
    time.sleep(0.01)
# Its parent hears of the lost rank only when this one has ended: until then the lost one is a zombie.
os._exit(0)
"""


def test_a_rank_whose_memory_is_gone_is_named(tmp_path):
    """Rank 0 receives from rank 2, which has announced its message and been killed."""
    said = run_joined(tmp_path, 3, DIES)[0]
    assert re.match(r"(the memory of )?rank 2 .*; rank 0 waited: rank 0 threadblock", said), said


def followed(layout, *, in_place, readable=True, wired=False):
    every = moves(layout)
    found = traffic(
        layout,
        every,
        in_place=in_place,
        readable=lambda connection, span: readable,
        wired=lambda connection: wired,
    )
    return every, found


@given(
    kind=st.sampled_from(KINDS),
    ranks=st.integers(2, 6),
    chunks=st.integers(1, 4),
    seed=st.integers(0, 1 << 30),
    in_place=st.booleans(),
    wired=st.booleans(),
)
def test_no_rank_can_wait_for_itself(kind, ranks, chunks, seed, in_place, wired):
    layout = Layout(lower(random_schedule(kind, ranks, chunks, seed)), 12)
    every, found = followed(layout, in_place=in_place and layout.program.in_place, wired=wired)
    moment = {move.step: at for at, move in enumerate(every)}
    for step, messages in found.waits.items():
        for message in messages:
            # The same rank has sent, and read or copied, the data before they are overwritten.
            assert message.sent < moment[step]
            assert every[message.sent].rank == every[moment[step]].rank
            assert message.copied or wired or message.received < moment[step]
    for message in found.outgoing.values():
        assert message.sent < message.received
    numbers = {}
    for move in every:
        if move.to >= 0:
            numbers.setdefault(move.to, []).append(found.outgoing[move.step].number)
    assert all(of_one == list(range(len(of_one))) for of_one in numbers.values())


@pytest.mark.parametrize("program", EXCHANGES, ids=["reduce", "copy"])
def test_an_exchange_through_one_slot_is_copied_on_one_host_and_waited_for_on_wires(program):
    layout = Layout(program, 12)
    _, near = followed(layout, in_place=True)
    # The receiver cannot write before its own message is read: one of the two must be a copy.
    assert any(message.copied for message in near.outgoing.values())
    _, far = followed(layout, in_place=True, wired=True)
    assert not any(message.copied or message.landed for message in far.outgoing.values())
    assert sum(map(len, far.waits.values())) == 2


def test_what_cannot_be_read_in_place_is_copied_and_nothing_waits_for_it():
    layout = Layout(lower(ring_all_reduce(4, 3)), 12)
    _, found = followed(layout, in_place=True, readable=False)
    assert all(message.copied for message in found.outgoing.values())
    assert not any(found.waits.values())


@given(
    largest=st.integers(1, 1 << 20),
    item_bytes=st.sampled_from([1, 2, 4, 8]),
    tile_bytes=st.integers(64, 1 << 20),
)
def test_tiles_cover_every_chunk(largest, item_bytes, tile_bytes):
    layout = Layout(lower(ring_all_reduce(2)), 2 * largest)
    tiling = tiling_of(layout, item_bytes, tile_bytes)
    assert (tiling.tiles - 1) * tiling.tile < layout.largest <= tiling.tiles * tiling.tile
    if tiling.tiles > 1:
        assert tiling.tile * item_bytes % 64 == 0


def test_deadlocks_are_found_before_any_rank_starts():
    program = exchange([("rrc", (INPUT, 0), (OUTPUT, 0)), ("s", (INPUT, 0), None)])
    with pytest.raises(Exception, match="waits for a message"):
        moves(Layout(replace(program, name="stuck"), 4))


@algorithm(collective="broadcast", ranks=lambda ranks: ranks, chunks=lambda ranks: 4, root=lambda ranks: 0)
def short_and_long(ranks=2):
    """One connection, whose messages take one chunk and three."""
    for rank in (0, 1):
        chunk("input", 0, 0).assign("output", rank, 0)
        chunk("input", 0, 1, 3).assign("output", rank, 1)


@pytest.mark.parametrize("tile_bytes", [8, 1 << 20])
def test_data_that_looks_like_a_flag_is_none(tile_bytes, monkeypatch):
    monkeypatch.setattr(connections, "TILE_BYTES", tile_bytes)
    ranks, layout, runs = ThreadedRanks((0, 0), monkeypatch), Layout(short_and_long(), 12), 100

    def every_run(rank):
        send, recv = np.zeros(12 * (rank == 0), np.int64), np.zeros(12, np.int64)
        plan, found = MpiPlan(layout, ranks.groups[rank], send, recv), []
        for run in range(runs):
            # As large as the numbers of messages that are yet to come.
            send[:] = 12 * run + 5 + np.arange(len(send))
            plan.run()
            found.append(recv.tolist())
        plan.close()
        return found

    with closing(ranks):
        sent, received = ranks.on_all(every_run)
    assert received == sent


@pytest.mark.parametrize(("protocol", "settles"), [("Simple", True), ("LL", False), ("LL128", False)])
def test_a_message_is_read_where_it_lies_by_the_simple_protocol_only(protocol, settles, monkeypatch):
    ranks = ThreadedRanks((0, 0), monkeypatch)
    layout = Layout(replace(lower(ring_all_reduce(2)), protocol=protocol), 8)

    def one_run(rank):
        send, recv = (shared_array(8, np.dtype(np.int64)) for _ in range(2))
        send[:] = 1 + rank
        plan = MpiPlan(layout, ranks.groups[rank], send, recv)
        plan.run()
        found = bool(plan._links[:, interpreter.SETTLE].any()), recv.tolist()
        plan.close()
        return found

    with closing(ranks):
        assert ranks.on_all(one_run) == [(settles, [3] * 8)] * 2


def test_what_only_switches_can_do_is_refused_before_any_rank_starts():
    network = pod("dgx-h100+nvls")
    program = lower(nvls.synthesize(network, collective("all_reduce", 8, 8), 1 << 12))
    with pytest.raises(UsageError, match=r"switches sum and copy .* which an executor on CPUs cannot do"):
        MpiPlan(Layout(program, 8), None, np.zeros(8), np.zeros(8))
