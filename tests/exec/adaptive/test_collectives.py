"""Every collective of a session is exact, also where a rank is killed between or in the middle of them."""

import pytest
from drawn_examples import chessboard
from joined import needs_ucx, over_all_wires, run_joined

from exec.adaptive.messages import SERVED, CollectiveCall
from exec.adaptive.replanner import first_schedules
from synth import verify
from synth.networks.families import family

START = """
import os
import numpy as np
from exec.adaptive import compiled_parts
from exec.adaptive.coordinator import WaitPolicy
from exec.adaptive.session import Session
from probes.base.errors import LostRankError, UsageError
count, root = 503, 1
KINDS = sys.argv.pop(4).split()
session = Session(comm, policy=WaitPolicy(relays=sys.argv.pop(4) == "relays", silent_s=1.0), replan_s=0.2)
for kind in KINDS:
    session.setup(count, kind=kind, root=root if kind in ("broadcast", "reduce") else None)
    # The first kind alone has contexts for two late ranks at once, which are most of its contexts.
    compiled_parts._MOST_FOR_PAIRS = 0

def data(kind, seq, of):
    blocks = size if kind in ("reduce_scatter", "all_to_all") else 1
    return np.random.default_rng([seq, of]).integers(-1000, 1000, blocks * count).astype(np.float32)

def ask(kind, seq):
    given = [data(kind, seq, rank)] + ([root] if kind in ("broadcast", "reduce") else [])
    return getattr(session, kind)(*given)

def expected(kind, seq, members):
    every = {of: data(kind, seq, of) for of in members}
    mine = slice(rank * count, (rank + 1) * count)
    if kind == "all_gather":
        return np.concatenate([every[of] for of in members])
    if kind == "all_to_all":
        return np.concatenate([every[of][mine] for of in members])
    if kind == "broadcast":
        return every[root]
    whole = np.sum(list(every.values()), axis=0)
    if kind == "reduce":
        return whole if rank == root else whole[:0]
    return whole[mine] if kind == "reduce_scatter" else whole

def same(found, wanted):
    return found.shape == wanted.shape and bool((found == wanted).all())
"""

QUEUED = """
works = [(kind, seq, ask(kind, seq)) for seq in range(5) for kind in KINDS]
for kind, seq, work in reversed(works):
    assert same(work.wait(100), expected(kind, seq, range(size))), (kind, seq)
    assert work.members == tuple(range(size))
session.close()
"""

LATE = """
import random, time
chance, own = random.Random(11), random.Random(rank)
seq, relayed = 0, set()
# However busy the machine is, each kind is carried out without late ranks once there are contexts for that.
while len(relayed) < len(KINDS):
    kind = KINDS[seq % len(KINDS)]
    late = [of for of in range(size) if chance.random() < 0.3][: size if kind == KINDS[0] else 1]
    if rank in late:
        time.sleep(0.01 + own.random() * 0.05)
    work = ask(kind, seq)
    assert same(work.wait(300), expected(kind, seq, range(size))), (kind, seq)
    assert work.members == tuple(range(size))
    seq += 1
    if seq % 10 == 0:
        mine = {KINDS[seen.seq % len(KINDS)] for seen in session.seen if len(seen.parts) > 1}
        relayed |= comm.named("relayed").allgather(mine)[session.coordinator]
session.close()
"""

LOSS = """
import signal, threading, time
victim, moment, late, lag_s = int(sys.argv[4]), float(sys.argv[5]), int(sys.argv[6]), float(sys.argv[7])

def strike():
    time.sleep(moment)
    os.kill(os.getpid(), signal.SIGKILL)

left = tuple(of for of in range(size) if of != victim)
# What is in the results once the rank is gone: nothing where it was the root.
gone = [() if victim == root and kind in ("broadcast", "reduce") else left for kind in KINDS]
told = []
while told[-3:] != [gone] * 3:
    seq, row = len(told), []
    if seq == 2 and rank == victim:
        threading.Thread(target=strike).start()
    works = []
    for kind in KINDS:
        if rank == late:
            time.sleep(lag_s)
        works.append((kind, ask(kind, seq)))
    for kind, work in works:
        try:
            found = work.wait(100)
        except LostRankError:
            assert victim == root and kind in ("broadcast", "reduce"), (kind, seq)
            row.append(())
            continue
        assert work.members in (tuple(range(size)), left), (kind, seq, work.members)
        assert same(found, expected(kind, seq, work.members)), (kind, seq)
        row.append(work.members)
    told.append(row)
assert session.members == left and list(session.lost) == [victim]
# The data of the lost rank is in a result on all ranks or on none.
assert session.gather("told", told) == dict.fromkeys(left, told)
session.close()
"""

REFUSED = """
for call, word in (
    (lambda: session.setup(5, kind="scatter"), "kind"),
    (lambda: session.setup(5, kind="broadcast"), "root"),
    (lambda: session.setup(5, kind="broadcast", root=size), "root"),
    (lambda: session.setup(5, kind="all_to_all", root=0), "root"),
    (lambda: session.all_to_all(np.zeros(size * count + 1, np.float32)), "data"),
    (lambda: session.reduce(np.zeros(count, np.float32), 0), "data"),
):
    try:
        call()
    except UsageError as error:
        assert error.message.startswith(word), error.message
    else:
        raise AssertionError(word)
session.close()
"""


ALL_KINDS = "all_reduce all_gather reduce_scatter all_to_all broadcast reduce"


def run_session(folder, ranks, script, *arguments, kinds=ALL_KINDS, wires="", relays=True):
    words = kinds, "relays" if relays else "waits", *map(str, arguments)
    run_joined(folder, ranks, START + script, *words, wires=wires)


@over_all_wires
def test_every_collective_is_exact_in_a_queue_of_all(tmp_path, wires):
    run_session(tmp_path, 3, QUEUED, wires=wires, relays=not wires)


def test_every_collective_but_a_broadcast_goes_on_without_late_ranks(tmp_path):
    run_session(tmp_path, 4, LATE, kinds=ALL_KINDS.replace("broadcast ", ""))


@pytest.mark.parametrize(
    ("ranks", "victim", "moment", "late", "lag_s", "kinds", "wires"),
    [
        (3, 1, 0.0, 2, 0.0, ALL_KINDS, ""),
        (4, 0, 0.05, 3, 0.02, "all_reduce all_to_all reduce", ""),
        pytest.param(3, 1, 0.05, 2, 0.02, "all_reduce reduce_scatter broadcast", "ucx", marks=needs_ucx),
        pytest.param(4, 3, 0.05, 3, 0.03, ALL_KINDS, "", marks=pytest.mark.long),
    ],
)
def test_survivors_of_every_collective_agree_and_are_exact(
    ranks, victim, moment, late, lag_s, kinds, wires, tmp_path
):
    run_session(tmp_path, ranks, LOSS, victim, moment, late, lag_s, kinds=kinds, wires=wires)


def test_what_no_collective_can_be_is_refused(tmp_path):
    run_session(tmp_path, 2, REFUSED, kinds="all_to_all reduce", relays=False)


@pytest.mark.parametrize(("links", "kind"), chessboard(["ring:2", "switch:3", "ring:4", "mesh:4"], SERVED))
def test_there_is_a_schedule_at_once_also_where_links_lack(links, kind):
    network = family(links, [1e-5], [1e9])
    members = [2 + 3 * rank for rank in range(network.ranks)]
    asked = CollectiveCall(kind, "sum", "float32", 503, 4, root=members[1])
    made = first_schedules(network, [asked], members)[asked]
    assert verify(made) == []
    assert made.collective.kind == kind and made.collective.root == (1 if asked.rooted else 0)
