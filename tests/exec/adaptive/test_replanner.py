"""One process serves search after search; one that dies is replaced, and none is left behind."""

import os
import queue
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from exec.adaptive.links_now import LinkNow, with_links
from exec.adaptive.messages import CollectiveCall
from exec.adaptive.replanner import Replanner, first_schedules
from synth.check.schedule import check
from synth.network import Link, build

ROOT = Path(__file__).parents[3]
ASKED = CollectiveCall("all_reduce", "sum", "float32", 1 << 18, 4)
PATIENCE_S = 200

# A process that searches once, says by which process, and then stays until it is killed.
RANK = """
import sys, threading, time
sys.path[:0] = sys.argv[1:]
from test_replanner import ASKED, hosts
from exec.adaptive.replanner import Replanner, first_schedules
replanner = Replanner(lambda found: None, 20.0)
replanner.warm(hosts(), first_schedules(hosts(), [ASKED], range(3)))
print(replanner.pid, flush=True)
time.sleep(1000)
"""


def hosts(count=3):
    """Hosts of one rank behind a switch."""
    ends = [(a, b) for a in range(count) for b in range(count) if a != b]
    links = [Link(a, b, 1e-4, 1e-8, (f"{a} out", f"{b} in")) for a, b in ends]
    return build("hosts", [f"h{at}" for at in range(count)], links)


def with_slow(rank):
    """The same, with a tenth of the rate to and from one rank."""
    network = hosts()
    slow = [at for at in range(3) if at != rank]
    found = [LinkNow(*ends, 1e-4, 1e-7) for at in slow for ends in ((at, rank), (rank, at))]
    return with_links(network, found)


@pytest.fixture
def searches():
    """Replans and waits for what is found."""
    found = queue.SimpleQueue()
    replanner = Replanner(found.put, 60.0)

    def search(network, now):
        replanner.start(network, now)
        return found.get(timeout=PATIENCE_S)

    yield replanner, search
    replanner.close()
    assert replanner.pid is None


def test_one_process_serves_search_after_search_and_a_dead_one_is_replaced(searches):
    replanner, search = searches
    now = first_schedules(hosts(), [ASKED], range(3))
    first = search(with_slow(2), now)
    assert first.gain > 1.1
    assert not check(first.schedules[ASKED])
    dead = replanner.pid
    os.kill(dead, signal.SIGKILL)
    after = search(with_slow(1), now)
    pid = replanner.pid
    assert after.gain > 1.1
    assert pid not in (None, dead)
    # Schedules from before the change count as new once the links are as they were.
    assert not search(with_slow(1), after.schedules).schedules
    assert replanner.pid == pid


def test_a_search_that_goes_beyond_its_budget_ends(searches):
    replanner, search = searches
    replanner._budget_s = 0.0
    assert not search(with_slow(2), first_schedules(hosts(), [ASKED], range(3))).schedules
    assert replanner.pid is None


def test_a_rank_that_is_killed_leaves_no_process():
    paths = [str(ROOT), str(Path(__file__).parent)]
    command = [sys.executable, "-P", "-c", RANK, *paths]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as rank:
        pid = int(rank.stdout.readline())
        rank.kill()
    deadline_s = time.monotonic() + PATIENCE_S
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
