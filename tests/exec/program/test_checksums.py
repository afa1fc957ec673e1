"""Checksums tell who corrupts data: a rank after a step of its own, or the link to the next rank."""

from contextlib import closing

import numpy as np
import pytest
from hypothesis import given, strategies as st
from sample_schedules import random_schedule, ring_all_reduce
from threaded_ranks import ThreadedRanks

from exec.mpi import interpreter, plan as plan_module
from exec.mpi.plan import MpiPlan
from exec.program.checksums import StepSums, checksum, corruptions, expected_sums
from exec.program.layout import Layout
from synth.collective import KINDS
from synth.compiler.lowering import lower
from synth.program import INPUT, OUTPUT

RANKS, COUNT = 3, 999
PROGRAM = lower(ring_all_reduce(RANKS, 1))


def inputs_of(program, count):
    layout = Layout(program, count)
    random = np.random.default_rng(7)
    return [
        random.standard_normal(layout.elements(rank, INPUT)).astype(np.float32)
        for rank in range(program.ranks)
    ]


def run(program, count, hosts, monkeypatch, spoil=lambda rank, plan, recv: None):
    """Return what the checksums of one run say; ``spoil`` may install a fault on a rank."""
    layout, inputs = Layout(program, count), inputs_of(program, count)
    ranks = ThreadedRanks(hosts, monkeypatch)

    def work(rank):
        recv = np.zeros(layout.elements(rank, OUTPUT), np.float32)
        plan = MpiPlan(layout, ranks.groups[rank], inputs[rank].copy(), recv, summed=True)
        spoil(rank, plan, recv)
        plan.run()
        found = plan.checksums()
        plan.close()
        return *found, checksum(recv)

    sizes = program.steps, program.steps, program.ranks
    found = StepSums(*(np.zeros(size, np.int64) for size in sizes))
    with closing(ranks):
        for rank, (steps, sums, output) in enumerate(ranks.on_all(work)):
            found.received[steps], found.result[steps] = sums.T
            found.output[rank] = output
    return corruptions(layout, expected_sums(program, inputs), found)


@given(st.binary(min_size=1, max_size=200), st.data())
def test_any_changed_byte_changes_the_checksum_and_parts_add_up(content, data):
    plain = np.frombuffer(content, np.uint8)
    at = data.draw(st.integers(0, len(content) - 1))
    other = plain.copy()
    other[at] ^= data.draw(st.integers(1, 255))
    assert checksum(plain) != checksum(other)
    with np.errstate(over="ignore"):
        total = np.int64(checksum(plain[:at])) + np.int64(checksum(plain[at:], at))
    assert total == checksum(plain)


@pytest.mark.parametrize(("hosts", "count"), [((0, 0, 0), 40_000), ((0, 1, 2), 12), ((0, 0, 1), 13)])
@pytest.mark.parametrize("kind", KINDS)
def test_the_executor_has_the_checksums_of_the_reference(kind, hosts, count, monkeypatch):
    assert run(lower(random_schedule(kind, RANKS, 2, count)), count, hosts, monkeypatch) == []


def spoiled_memory(rank):
    """Return a fault: after the last step, one bit of the rank's output flips."""

    def spoil(here, plan, recv):
        if here != rank:
            return
        begin = plan.run

        def run():
            begin()
            recv.view(np.uint32)[COUNT // 2] ^= 1 << 20

        plan.run = run

    return spoil


def spoiled_wire(rank, number):
    """Return a fault: one bit of a message that the rank receives flips on its way."""

    def spoil(here, plan, recv):
        if here != rank:
            return
        serve, done = plan._wires.serve, []
        wire = next(one for one in plan._wires.made_of if not one.outgoing)

        def flipped(*, wait):
            moved = serve(wait=wait)
            if not done and wire.counters[0] > number:
                wire.messages[number].view(np.uint8)[3] ^= 1
                done.append(True)
            return moved

        # Python serves the wires of this rank, between two passes of the interpreter.
        plan._header[interpreter.TCP_ENDS] = 0
        plan._wires.serve = flipped

    return spoil


def spoiled_sum(rank):
    """Return a fault: the rank adds an operand with a flipped bit, though its memory is right."""

    def spoil(here, plan, recv):
        if here != rank:
            return
        tables = plan._tables
        step = next(row for row in tables.steps if row[interpreter.OP] == interpreter.RRS)
        piece = tables.pieces[step[interpreter.PIECE_FIRST]]
        operand = plan._send.copy()
        operand.view(np.uint32)[:] ^= 1 << 10
        plan.wrong_operand = operand
        piece[interpreter.SRC] += operand.ctypes.data - plan._send.ctypes.data

    return spoil


@pytest.mark.parametrize("rank", range(RANKS))
@pytest.mark.parametrize("hosts", [(0, 0, 0), (0, 1, 2)])
def test_a_rank_that_adds_wrongly_is_named(rank, hosts, monkeypatch):
    [found] = run(PROGRAM, COUNT, hosts, monkeypatch, spoiled_sum(rank))
    assert (found.kind, found.rank, found.op, found.steps) == ("rank", rank, "rrs", 1)


@pytest.mark.parametrize("rank", range(RANKS))
def test_a_rank_whose_memory_changes_at_the_end_is_named(rank, monkeypatch):
    [found] = run(PROGRAM, COUNT, (0, 1, 2), monkeypatch, spoiled_memory(rank))
    assert (found.kind, found.rank, found.step) == ("rank", rank, -1)


@pytest.mark.parametrize(("rank", "number"), [(0, 0), (1, 2), (2, 3)])
def test_a_link_that_changes_a_message_is_named_with_both_ends(rank, number, monkeypatch):
    made = plan_module._wires

    def keeping(comm, wires):
        found = made(comm, wires)
        found.made_of = wires
        return found

    monkeypatch.setattr(plan_module, "_wires", keeping)
    [found] = run(PROGRAM, COUNT, (0, 1, 2), monkeypatch, spoiled_wire(rank, number))
    assert (found.kind, found.peer, found.rank, found.steps) == ("link", (rank - 1) % RANKS, rank, 1)
