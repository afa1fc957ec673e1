"""The MPI executor must give what the interpreter gives, bit for bit, and its timeline must hold."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from assembler import Assembler
from hypothesis import given
from hypothesis import strategies as st
from sample_schedules import random_schedule, ring_all_reduce

from exec.layout import Layout
from exec.moves import moves
from exec.mpi.timeline import timeline
from synth.collective import KINDS, collective
from synth.compiler.lower import lower
from synth.compiler.replay import judge
from synth.program import INPUT, OPS, OUTPUT, SCRATCH

# Runs on every rank: programs and inputs from a pickle, compared with what the interpreter gave.
WORKER = """
import pickle, sys
import numpy as np
from mpi4py import MPI
from exec.layout import Layout
from exec.mpi.plan import Plan
from exec.redops import dtype_of
from synth.program import INPUT, OUTPUT

comm = MPI.COMM_WORLD
rank = comm.Get_rank()
with open(sys.argv[1], "rb") as stream:
    cases = pickle.load(stream)
wrong = []
for number, (program, count, inputs, redop, in_place, outputs) in enumerate(cases):
    layout = Layout(program, count)
    if in_place:
        total, first, last = layout.in_place(rank)
        whole = np.zeros(total, inputs[rank].dtype)
        send, recv = whole[first], whole[last]
    else:
        send = np.zeros(layout.elements(rank, INPUT), inputs[rank].dtype)
        recv = np.zeros(layout.elements(rank, OUTPUT), inputs[rank].dtype)
    plan = Plan(layout, comm, send, recv, redop)
    for repetition in range(3):
        recv[:] = 99
        send[:] = inputs[rank]
        plan.run()
        if recv.tobytes() != outputs[rank].tobytes():
            wrong.append((number, repetition))
        if not in_place and send.tobytes() != inputs[rank].tobytes():
            wrong.append((number, "input"))
    plan.close()
every = comm.gather(wrong)
if rank == 0:
    print(every)
    sys.exit(any(every))
"""


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
    found = [lower(random_schedule(kind, ranks, 2, seed)) for kind in kinds for seed in range(3)]
    if ranks > 1:
        found.append(lower(ring_all_reduce(ranks, 2)))
    if ranks == 2:
        found += EXCHANGES
    if ranks == 3:
        found += [fused_ring(), wide_broadcast()]
    return found


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_programs_equal_the_interpreter(ranks, tmp_path):
    import pickle

    from exec import reference
    from exec.interpreter import interpret

    cases = []
    # The largest is beyond every eager limit, so that a send ends only once it is received.
    for number, program in enumerate(programs(ranks)):
        assert judge(program) == []
        for count in (1, 7, 64, 50_000):
            redop = ("sum", "prod", "min", "max")[(number + count) % 4]
            dtype = np.dtype(("float32", "float64", "int32", "int64")[number % 4])
            for in_place in (False, True)[: 1 + program.in_place]:
                layout = Layout(program, count)
                inputs = [reference.given(layout, rank, dtype, redop) for rank in range(ranks)]
                outputs = interpret(program, inputs, redop, in_place=in_place)
                cases.append((program, count, inputs, redop, in_place, outputs))
    (tmp_path / "cases").write_bytes(pickle.dumps(cases))
    (tmp_path / "worker.py").write_text(WORKER)
    mpirun = [Path(sys.executable).with_name("mpirun"), "--allow-run-as-root", "--oversubscribe"]
    worker = [sys.executable, "-P", tmp_path / "worker.py", tmp_path / "cases"]
    done = subprocess.run(
        [*mpirun, "-n", str(ranks), *worker],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def depends_on_the_past(line, every):
    """Whether every event of the timeline waits only for events of earlier moments."""
    for message in line:
        rank = every[message.sent].rank
        assert message.sent < message.received
        assert message.posted <= message.received
        assert all(moment > message.posted for moment in message.waits)
        assert all(every[int(moment)].rank == rank for moment in message.waits)


@given(
    kind=st.sampled_from(KINDS),
    ranks=st.integers(1, 6),
    chunks=st.integers(1, 4),
    seed=st.integers(0, 1 << 30),
    in_place=st.booleans(),
)
def test_no_rank_can_wait_for_itself(kind, ranks, chunks, seed, in_place):
    layout = Layout(lower(random_schedule(kind, ranks, chunks, seed)), 12)
    every = moves(layout)
    depends_on_the_past(timeline(layout, every, in_place=in_place and layout.program.in_place), every)


@pytest.mark.parametrize("program", EXCHANGES, ids=["reduce", "copy"])
def test_an_exchange_through_one_slot_is_buffered(program):
    layout = Layout(program, 12)
    every = moves(layout)
    line = timeline(layout, every, in_place=True)
    depends_on_the_past(line, every)
    # The receiver of a copy cannot post before its own send is over: one of the two must be copied.
    copies = any(move.op == "r" for move in every)
    assert any(message.bounced for message in line) == copies
    assert all((message.staging >= 0) != copies for message in line)


def test_receives_of_a_connection_are_posted_in_the_order_of_its_messages():
    layout = Layout(lower(ring_all_reduce(4, 3)), 12)
    last = {}
    for message in timeline(layout, moves(layout), in_place=False):
        assert message.posted >= last.get(message.connection, message.posted)
        last[message.connection] = message.posted


def test_deadlocks_are_found_before_any_rank_starts():
    program = exchange([("rrc", (INPUT, 0), (OUTPUT, 0)), ("s", (INPUT, 0), None)])
    with pytest.raises(Exception, match="waits for a message"):
        moves(Layout(replace(program, name="stuck"), 4))
