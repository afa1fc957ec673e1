"""Chunks of a late rank that join a part under way are in the result once, whenever it becomes ready."""

import contextlib
import random
import threading
import time
from functools import reduce

import numpy as np
import pytest
from drawn_examples import drawn
from hypothesis import given, settings, strategies as st
from joined import run_joined
from sample_schedules import complete, random_schedule, schedule_of
from threaded_ranks import ThreadedRanks

from exec.adaptive.contexts import Contexts, Result, Version
from exec.adaptive.messages import CollectiveCall
from exec.mpi import interpreter
from exec.program.contents import contents_of
from exec.program.dtypes import combine_of
from exec.program.layout import Layout
from exec.program.move import moves
from exec.stragglers.late_chunks import Entrance, covered_slots, joined_elements, left_out, without_joined
from exec.stragglers.phase_buffers import input_of, merged
from synth import compile as compile_
from synth.collective import collective
from synth.program import INPUT, OUTPUT, SCRATCH
from synth.relays.partial import WAYS, late_phase, partial_phase
from synth.schedules import COPY, REDUCE

LENGTH = 3


def carried_out(phase, given, ready_at, without=None):
    """(outputs, what was added of the input of each late rank) of a phase, one step after the other.

    Rank r is late, and ready before step ``ready_at[r]``; chunks ``without`` are not sent.
    """
    program = compile_(phase.schedule)
    layout = Layout(program, LENGTH)
    steps = moves(layout)
    skipped = contents_of(program, steps).steps.within(without) if without is not None else None
    buffers = [
        [given[rank], *(np.full(layout.elements(rank, of), 10**6) for of in (OUTPUT, SCRATCH))]
        for rank in range(program.ranks)
    ]
    added, under_way = [np.zeros(one.size, dtype=bool) for one in given], {}
    for number, move in enumerate(steps):
        if skipped is not None and skipped[move.step]:
            continue
        received = under_way[move.from_].pop(0) if move.from_ >= 0 else []
        sent = []
        for at, part in enumerate(move.parts):
            value = None
            if part.src is not None:
                here = slice(part.src.start, part.src.stop)
                late = move.rank in ready_at and part.src.buffer == INPUT
                if not late or number >= ready_at[move.rank]:
                    value = buffers[move.rank][part.src.buffer][here]
                if late and value is not None:
                    assert not added[move.rank][here].any()
                    added[move.rank][here] = True
            if move.op == "re":
                value = value + buffers[move.rank][part.dst.buffer][part.dst.start : part.dst.stop]
            if move.from_ >= 0:
                value = received[at] if value is None else received[at] + value
            if part.dst is not None:
                buffers[move.rank][part.dst.buffer][part.dst.start : part.dst.stop] = value
            sent.append(np.array(value))
        if move.to >= 0:
            under_way.setdefault(move.to, []).append(sent)
    return [one[OUTPUT] for one in buffers], added


@settings(max_examples=drawn(60), deadline=None)
@given(st.integers(3, 6), st.integers(0, 1 << 30), st.data())
def test_all_parts_together_are_exact_whenever_late_ranks_become_ready(ranks, seed, data):
    chance = random.Random(seed)
    schedule = random_schedule("all_reduce", ranks, 3, seed)
    whole = [np.random.default_rng([seed, of]).integers(-99, 99, 3 * LENGTH) for of in range(ranks)]
    ready = data.draw(st.sets(st.integers(0, ranks - 1), min_size=1, max_size=ranks - 1))
    late = sorted(set(range(ranks)) - ready)
    first = partial_phase(schedule, ready, late_may_join=True)
    moments = {rank: chance.randrange(compile_(first.schedule).steps + 1) for rank in late}
    given = [input_of(first, rank, whole[rank]) for rank in range(ranks)]
    outputs, added = carried_out(first, given, moments)
    parts = [[merged([first], [outputs[rank]], rank) for rank in range(ranks)]]
    joined = {
        rank: joined_elements(first, rank, added[rank], 3 * LENGTH) for rank in late if given[rank].size
    }
    chance.shuffle(late)
    cut = chance.randrange(len(late)) if len(late) > 1 else 0
    for group in filter(None, (late[:cut], late[cut:])):
        phase = late_phase(schedule, set(group), chance.choice(WAYS))
        covered = {
            rank: covered_slots(phase, rank, joined[rank], 3 * LENGTH) for rank in group if rank in joined
        }
        without = left_out(phase, covered)
        given = [
            input_of(
                phase,
                rank,
                without_joined(whole[rank], joined[rank], "sum") if rank in joined else whole[rank],
            )
            for rank in range(ranks)
        ]
        outputs, _ = carried_out(phase, given, {}, without)
        for rank, output in enumerate(outputs):
            own = np.flatnonzero(phase.schedule.collective.targets.has(rank))
            output.reshape(len(own), -1)[without[own]] = 0
        parts.append([merged([phase], [outputs[rank]], rank) for rank in range(ranks)])
    for rank in range(ranks):
        assert sum(part[rank] for part in parts).tolist() == sum(whole).tolist()


def test_data_is_taken_once_and_only_while_its_part_is_under_way():
    entrance, taken = Entrance(), []
    data = np.arange(2)
    entrance.offer("asked", data)
    with entrance.open("asked", taken.append):
        entrance.offer("other", data)
        assert not taken
        entrance.offer("asked", data)
        entrance.offer("asked", data)
    entrance.offer("asked", data)
    assert len(taken) == 1


def chains():
    """Rank 1 passes on what 0 begins, and then what 3 begins; both end at 2."""
    down = [(1, 2, REDUCE), (2, 1, COPY), (1, 0, COPY), (1, 3, COPY)]
    first, second = [(0, 1), (3, 1)], [(3, 1), (0, 1)]
    sends = []
    for chunk, heads in enumerate((first, second)):
        # The other head is a leaf of the same tree below the root.
        (head, _), (leaf, _) = heads
        sends += [(chunk, head, 1, REDUCE), (chunk, leaf, 2, REDUCE)]
        sends += [(chunk, *send) for send in down]
    return schedule_of(complete(4), collective("all_reduce", 4, 2), sends)


@pytest.mark.parametrize("hosts", [(0, 0, 0, 0), (0, 1, 2, 3)])
def test_the_executor_adds_what_has_not_passed_and_leaves_it_out_later(hosts, monkeypatch):
    count, ranks, sent = 64, ThreadedRanks(hosts, monkeypatch), {}
    half = [False] * 32 + [True] * 32
    cases = [
        ("sum", "never", None),
        ("min", "middle", half),
        ("avg", "before", [True] * 64),
        ("prod", "middle", half),
    ]
    try:
        for op, when, wanted in cases:
            request = CollectiveCall("all_reduce", op, "float32", count, 4)
            data = [np.random.default_rng(of).standard_normal(count).astype("float32") for of in range(4)]
            data[1][:2] = -0.0, np.nan
            results, joined, sizes = zip(*late_run(ranks, request, data, when), strict=True)
            assert len({result.tobytes() for result in results}) == 1
            np.testing.assert_allclose(results[0], reduce(combine_of(op, data[0].dtype), data), rtol=1e-4)
            assert (joined[1].tolist() if joined[1] is not None else None) == wanted
            sent[when] = sum(sizes)
    finally:
        ranks.close()
    if hosts == (0, 1, 2, 3):
        assert sent["never"] >= 3 * 4 * count
        assert (sent["middle"], sent["before"]) == (sent["never"] // 2, 0)


def late_run(ranks, request, data, when):
    """(result, what joined, bytes of the second part) of each rank, of which rank 1 is late."""
    contexts = ranks.on_all(
        lambda rank: Contexts(ranks.groups[rank], Version(0, {request: chains()}), range(4))
    )
    ranks.on_all(lambda rank: contexts[rank].prepare(request, [0, 2, 3], first=True))
    blocks = next(iter(contexts[1]._made.values())).plan._tables.blocks
    blocks[:, interpreter.AT_TILE] = 0
    at, first = interpreter.AT_STEP, interpreter.FIRST
    has_joined = threading.Event()

    def late(take):
        """Let the first chunk pass before there is data, and the second begin after."""
        until_s = time.monotonic() + 60
        while not (blocks[:, interpreter.AT_TILE].any() or (blocks[:, at] != blocks[:, first]).any()):
            assert time.monotonic() < until_s
            time.sleep(0.001)
        take(data[1])
        has_joined.set()

    @contextlib.contextmanager
    def offers(take):
        thread = threading.Thread(target=late, args=(take,))
        if when == "before":
            take(data[1])
        if when == "middle":
            thread.start()
        else:
            has_joined.set()
        yield
        if when == "middle":
            thread.join()

    def run(rank):
        result = Result()
        if rank == 3:
            assert has_joined.wait(60)
        contexts[rank].run(request, [0, 2, 3], data[rank] if rank != 1 else None, result, offers)
        before = moved(contexts[rank])
        contexts[rank].run(request, [1], data[1] if rank == 1 else None, result)
        return result.whole(request), result.joined, moved(contexts[rank]) - before

    found = ranks.on_all(run)
    ranks.on_all(lambda rank: contexts[rank].close())
    return found


def moved(contexts):
    """The bytes that a rank has sent in all runs."""
    wires = [context.plan._wires for context in contexts._made.values()]
    ends = [one._tcp for one in wires if one is not None]
    return sum(tcp.bytes_moved(row) for tcp in ends for row, wire in enumerate(tcp.wires) if wire.outgoing)


# Four hosts in a ring: whatever tree a chunk takes, each rank passes most of them on. Rank 2 becomes ready
# once it has begun to relay; what it relays waits for that.
JOINS = """
import contextlib, hashlib, os, threading, time
from pathlib import Path
import numpy as np
from exec.adaptive import compiled_parts
from exec.adaptive.coordinator import WaitPolicy
from exec.adaptive.messages import PartDone
from exec.adaptive.session import Session
from synth.network import Link, build
count, late, seqs = 5003, 2, 3
around = [(of, (of + way) % size) for of in range(size) for way in (1, -1)]
network = build("around", list("abcd"), [Link(src, dst, 1e-5, 1e-8) for src, dst in around])
session = Session(comm, network, policy=WaitPolicy(silent_s=1.0), replan_s=0.1)
# No two ranks are late.
compiled_parts._MOST_FOR_PAIRS = 0
session.setup(count)
backend = session._backend
began, ready = ([threading.Event() for _ in range(seqs)] for _ in range(2))

@contextlib.contextmanager
def waits(go, take, offers=backend._offers):
    with offers(go, take):
        began[go.seq].set()
        assert ready[go.seq].wait(100)
        yield

def report(message, report=backend._report):
    report(message)
    if isinstance(message, PartDone) and (message.seq, message.number, message.epoch) == (seqs - 1, 0, 0):
        Path(folder, f"{rank} has the first part").touch()
        if rank == late:
            while len([*Path(folder).glob("* has the first part")]) < size:
                time.sleep(0.01)
            os.kill(os.getpid(), 9)

backend._offers, backend._report = waits, report
given = [np.random.default_rng([seq, rank]).standard_normal(count).astype(np.float32) for seq in range(seqs)]
given[0], given[2] = np.round(given[0] * 100), np.round(given[2] * 100)
for seq, data in enumerate(given):
    if rank == late:
        assert began[seq].wait(100)
    work = session.all_reduce(data)
    ready[seq].set()
    found = work.wait(200)
    assert work.members == (tuple(range(size)) if seq < 2 else (0, 1, 3))
    drawn = [np.random.default_rng([seq, of]).standard_normal(count) for of in work.members]
    every = [each.astype(np.float32) for each in drawn]
    if seq == 1:
        np.testing.assert_allclose(found, np.sum(every, axis=0), atol=1e-5)
        digests = comm.named("bits").allgather(hashlib.sha256(found.tobytes()).hexdigest())
        assert len(set(digests)) == 1
        told = comm.named("joined").allgather(session.joined_late)
        assert [seq for seq, _ in told[late]] == [0, 1] and told[late][0][1] >= 4 * count // 4, told
    else:
        assert (found == np.sum([np.round(each * 100) for each in every], axis=0)).all(), seq
assert session.epoch == 1
session.close()
"""


def test_a_rank_joins_the_part_it_relays_in_and_its_death_then_leaves_nothing_of_it(tmp_path):
    run_joined(tmp_path, 4, JOINS)
