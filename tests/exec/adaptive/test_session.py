"""A session gives exact results while ranks come late, die, stop, and change to other schedules."""

import sys
from pathlib import Path

import pytest
from joined import run_joined
from limits import HANG_S

from exec.launcher.run import launch

START = """
import os, random, signal, time
import numpy as np
from exec.adaptive.coordinator import WaitPolicy
from exec.adaptive.session import Session
count = 5003
session = Session(comm, policy=WaitPolicy(silent_s=1.0), replan_s=0.5)
session.setup(count)

drawn = [np.random.default_rng(of).integers(-1000, 1000, count).astype(np.float32) for of in range(size)]

def data(seq, of):
    # Each request of a test has data of its own.
    return drawn[of][:count] + np.float32(seq * (of + 1))

def expected(seq, members):
    return np.sum([data(seq, of) for of in members], axis=0)
"""

RANDOM_SETS = """
chance = random.Random(7)
late = [[of for of in range(size) if chance.random() < 0.3] for _ in range(ROUNDS)]
for seq in range(ROUNDS):
    if rank in late[seq]:
        time.sleep(chance.random() * 0.01 if rank else 0.004)
    assert (session.all_reduce(data(seq, rank)).wait(300) == expected(seq, range(size))).all(), seq
comm.named("end").Barrier()
if rank == session.coordinator:
    print(sum(len(seen.parts) > 1 for seen in session.seen))
session.close()
"""

QUEUED = """
works = [session.all_reduce(data(seq, rank)) for seq in range(20)]
for seq, work in reversed(list(enumerate(works))):
    assert (work.wait(300) == expected(seq, range(size))).all()
    assert work.members == tuple(range(size))
session.close()
"""

LOSS = """
victim, how = int(sys.argv[4]), int(sys.argv[5])
for seq in range(30):
    if seq == 10 and rank == victim:
        os.kill(os.getpid(), how)
    work = session.all_reduce(data(seq, rank))
    found = work.wait(300)
    full, left = expected(seq, range(size)), expected(seq, [of for of in range(size) if of != victim])
    assert (found == full).all() or (seq >= 10 and (found == left).all()), seq
assert session.members == tuple(of for of in range(size) if of != victim) and session.epoch == 1
assert list(session.lost) == [victim]
assert (found == left).all() and work.members == session.members
session.close()
"""

# One dies where the others make contexts; one of them has not begun by then.
LOSS_IN_SETUP = """
victim = 1
session.all_reduce(data(0, rank)).wait(300)
count = 3001
if rank == victim:
    os.kill(os.getpid(), 9)
if rank == size - 1:
    while session.epoch == 0:
        time.sleep(0.01)
session.setup(count)
left = [of for of in range(size) if of != victim]
for seq in range(5):
    assert (session.all_reduce(data(seq, rank)).wait(300) == expected(seq, left)).all()
session.setup(count, "float64")
assert session.all_reduce(np.full(count, 1.0)).wait(300).tolist() == [size - 1.0] * count
session.close()
"""

SLOWER = """
import dataclasses
from exec.adaptive.links_now import LinkNow, with_links
from exec.adaptive import swap_guard
from probes.base.columns import floats
# How long runs take on a busy machine neither contradicts a prediction nor condemns a swap.
swap_guard._EXPLAINED = swap_guard._ALIKE = 1e9
# On rings of equal links the planned schedule is as good as any; with one slow rank it is not.
direction = session._direction
until_s = time.monotonic() + 200
for seq in range(100_000):
    assert (session.all_reduce(data(seq, rank)).wait(300) == expected(seq, range(size))).all(), seq
    if seq == 5 and direction is not None:
        slow = [LinkNow(2, to, 1e-7, 1e-9) for to in range(size) if to != 2]
        slow += [LinkNow(of, 2, 1e-7, 1e-9) for of in range(size) if of != 2]
        even = [LinkNow(of, to, 1e-9, 1e-12) for of in range(size) for to in range(size) if of != to]
        direction._now = with_links(direction._now, even + slow)
        direction._replan()
    # While the search runs, it gets most of a core.
    time.sleep(0.1)
    # Callers of some ranks see the new version a request later than those of others: all decide together.
    found = comm.named("versions").allgather((session.version, time.monotonic() > until_s))
    versions = [version for version, _ in found]
    if all(versions) or any(late for _, late in found):
        break
assert versions == [1] * size, versions
for seq in range(seq + 1, seq + 10):
    assert (session.all_reduce(data(seq, rank)).wait(300) == expected(seq, range(size))).all(), seq
session.close()
"""

# Runs of what is found take longer than those of what is in use.
WORSE = """
from exec.adaptive.compiled_parts import packed, whole_parts
from exec.adaptive.contexts import Contexts
from exec.adaptive.replanner import Replanned
from synth.relays.pieces import cut
direction = session._direction
until_s = time.monotonic() + 200
seen = set()
run = Contexts.run
def slower(contexts, *given):
    if contexts.version.number:
        time.sleep(0.1)
    run(contexts, *given)
Contexts.run = slower
for seq in range(100_000):
    assert (session.all_reduce(data(seq, rank)).wait(300) == expected(seq, range(size))).all(), seq
    if seq == 5 and direction is not None:
        request, schedule = next(iter(session.schedules.items()))
        worse = {request: cut(schedule, 2)}
        direction._searched_for = 0, 0
        direction._planned(Replanned(worse, packed(whole_parts(worse)), {request: 2.0}, {request: 0.0}))
    found = comm.named("versions").allgather((session.version, time.monotonic() > until_s))
    seen |= {version for version, _ in found}
    # Without a pause a thousand requests would run meanwhile, on the cores of what compiles.
    time.sleep(0.02)
    if (1 in seen and not any(version for version, _ in found)) or any(late for _, late in found):
        break
assert seen == {0, 1} and session.version == 0, (seen, session.events)
for seq in range(seq + 1, seq + 10):
    assert (session.all_reduce(data(seq, rank)).wait(300) == expected(seq, range(size))).all(), seq
if direction is not None:
    [event] = [event for event in session.events if event.what == "rolled back"]
    assert event.detail["after_s"] > event.detail["before_s"]
    # That runs are fast again shows that the prediction was wrong.
    assert direction._guard.caution(time.monotonic()) == 2
session.close()
"""

# Rank 2 is late each time. Nobody may compile a part without it on the spot, while all wait.
NO_PART_WITHOUT_CONTEXTS = """
from exec.adaptive import contexts
from exec.adaptive.compiled_parts import compiled_part, packed, whole_parts
from exec.adaptive.replanner import Replanned
from synth.relays.pieces import cut
def whole_only(schedule, part, *given, **named):
    assert len(part) == schedule.network.ranks, part
    return compiled_part(schedule, part, *given, **named)
contexts.compiled_part = whole_only
direction, until_s = session._direction, time.monotonic() + 250

def run_until(over, first):
    "Requests until rank 0 says that it is over; the number of the next."
    for seq in range(first, 100_000):
        if rank == 2:
            time.sleep(0.1)
        members = session.members
        found = session.all_reduce(data(seq, rank)).wait(300)
        assert (found == expected(seq, session.members)).all() or (found == expected(seq, members)).all()
        verdict = (over(seq) or time.monotonic() > until_s) if rank == 0 else None
        if session.gather("over", verdict)[0]:
            assert time.monotonic() < until_s, session.events
            return seq + 1

def relayed_since(seq):
    return any(len(seen.parts) > 1 for seen in session.seen if seen.seq > seq)
"""

NEW_VERSION = (
    NO_PART_WITHOUT_CONTEXTS
    + """
from exec.adaptive import swap_guard
# How long runs take on a busy machine does not condemn the swap.
swap_guard._ALIKE = 1e9
following = run_until(lambda seq: relayed_since(0), 0)
if direction is not None:
    request, schedule = next(iter(session.schedules.items()))
    other = {request: cut(schedule, 2)}
    direction._searched_for = 0, 0
    direction._planned(Replanned(other, packed(whole_parts(other)), {request: 2.0}, {request: 0.0}))
following = run_until(lambda seq: session.version == 1, following)
if rank == 0:
    swapped = following
following = run_until(lambda seq: direction._late.exist(1) and relayed_since(seq - 5), following)
if rank == 0:
    whats = [event.what + " late" * event.detail.get("late", False) for event in session.events]
    assert whats.index("built late") > whats.index("swapped"), whats
    alone = [seen.seq for seen in session.seen if seen.seq >= swapped and len(seen.parts) == 1]
    # The three runs of the trial, at least, waited for rank 2.
    assert len(alone) >= 3, alone
session.close()
"""
)

AFTER_A_LOSS = (
    NO_PART_WITHOUT_CONTEXTS
    + """
following = run_until(lambda seq: relayed_since(0), 0)
if rank == 3:
    os.kill(os.getpid(), 9)
following = run_until(lambda seq: session.epoch == 1 and relayed_since(following + 3), following)
session.close()
"""
)

# Rank 2 is lost after its first value. Rank 1 asks for the next values once it has gone on without rank 2.
GATHERED = """
assert session.gather("all", rank) == {0: 0, 1: 1, 2: 2}
if rank == 2:
    os.kill(os.getpid(), 9)
while rank == 1 and session.epoch == 0:
    time.sleep(0.01)
assert session.gather("left", rank) == {0: 0, 1: 1}
session.close()
"""

# The root of a broadcast is lost. Its broadcasts fail one by one, also once nothing runs beside the job.
ROOT_IS_LOST = """
session.setup(count, kind="broadcast", root=2)
assert (session.broadcast(data(0, 2), root=2).wait(300) == data(0, 2)).all()
if rank == 2:
    os.kill(os.getpid(), 9)
direction, quiet, until_s = session._direction, 0, time.monotonic() + 200
while quiet < 3 and time.monotonic() < until_s:
    try:
        session.broadcast(data(0, 2), root=2).wait(300)
        raise AssertionError("a broadcast from a lost rank")
    except LostRankError as error:
        assert "the root, is lost" in str(error), error
    assert session.all_reduce(data(0, rank)).wait(300).size == count
    time.sleep(0.02)
    idle = direction is None or not (direction._replanner.busy or direction._is_installing)
    quiet = quiet + 1 if all(session.gather("idle", idle).values()) else 0
assert quiet == 3
session.close()
"""

# A rank that gets no core for longer than `silent_s`, on what the others take for another host, at whose
# processes they cannot look: the kernel acknowledges what it is sent.
STARVED = """
import os, signal, subprocess
from dataclasses import replace
import numpy as np
from exec.adaptive.coordinator import WaitPolicy
from exec.adaptive.links_now import guessed_network
from exec.adaptive.session import Session
comm.mesh.known = [replace(where, host=where.rank) for where in comm.mesh.known]
session = Session(comm, guessed_network(comm), policy=WaitPolicy(relays=False, silent_s=1.0))
session.setup(100)
if rank == 1:
    subprocess.Popen(["sh", "-c", f"sleep 1.7; kill -CONT {os.getpid()}"])
    os.kill(os.getpid(), signal.SIGSTOP)
assert session.all_reduce(np.full(100, 1.0, np.float32)).wait(300).tolist() == [size] * 100
assert session.epoch == 0 and not session.lost
session.close()
"""

# A task of ranks that a launcher started: one stops in the middle, and is ended by those who go on.
STOPS = """
import os, signal
import numpy as np
from exec.adaptive.coordinator import WaitPolicy
from exec.adaptive.session import Session

def stops(comm, arguments, progress):
    policy = WaitPolicy(relays=False, silent_s=0.7)
    session = Session(comm, policy=policy, replan_s=0.5, fence=progress.fence)
    session.setup(1000)
    for seq in range(60):
        if seq == 5 and comm.Get_rank() == arguments:
            os.kill(os.getpid(), signal.SIGSTOP)
        found = session.all_reduce(np.full(1000, 1.0 + comm.Get_rank(), np.float32)).wait(300)
        assert found[0] in (6.0, 6.0 - 1 - arguments), found
    left = session.members, session.epoch, sorted(session.lost)
    session.close()
    return left
"""


def test_results_are_exact_with_random_active_sets(tmp_path):
    relayed, *_ = run_joined(tmp_path, 4, START + RANDOM_SETS.replace("ROUNDS", "80"))
    assert int(relayed) > 0


def test_requests_queue_up(tmp_path):
    run_joined(tmp_path, 3, START + QUEUED)


def test_survivors_go_on_when_the_coordinator_is_killed(tmp_path):
    run_joined(tmp_path, 4, START + LOSS, "0", "9")


def test_a_rank_is_killed_while_the_others_set_up(tmp_path):
    run_joined(tmp_path, 4, START + LOSS_IN_SETUP)


def test_a_rank_of_another_host_that_is_starved_of_cores_is_waited_for(tmp_path):
    run_joined(tmp_path, 3, STARVED)


def test_one_rank_alone_has_nothing_to_add(tmp_path):
    run_joined(tmp_path, 1, START + QUEUED)


def test_all_ranks_change_to_better_schedules_between_the_same_requests(tmp_path):
    run_joined(tmp_path, 3, START.replace("count = 5003", "count = 500_003") + SLOWER)


def test_all_ranks_go_back_from_schedules_that_are_slower(tmp_path):
    run_joined(tmp_path, 3, START.replace("silent_s", "relays=False, silent_s") + WORSE)


def test_new_schedules_have_contexts_for_late_ranks_after_their_trial_and_before_anybody_relays(tmp_path):
    run_joined(tmp_path, 3, START + NEW_VERSION)


def test_after_a_loss_ranks_relay_again_once_there_are_contexts_for_that(tmp_path):
    run_joined(tmp_path, 4, START + AFTER_A_LOSS)


def test_values_are_gathered_over_the_loss_of_a_rank(tmp_path):
    run_joined(tmp_path, 3, START + GATHERED)


def test_broadcasts_from_a_lost_rank_fail_and_all_else_goes_on(tmp_path):
    run_joined(tmp_path, 3, "from probes.base.errors import LostRankError\n" + START + ROOT_IS_LOST)


@pytest.mark.mpi
def test_a_rank_that_is_stopped_is_ended_and_the_others_go_on(tmp_path, monkeypatch):
    Path(tmp_path, "job_that_stops.py").write_text(STOPS)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    found = launch("job_that_stops:stops", 1, ranks=3, wires="sockets", survive=True, timeout_s=HANG_S)
    assert found == ((0, 2), 1, [1])
