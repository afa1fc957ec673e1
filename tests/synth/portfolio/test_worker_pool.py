"""Processes side by side: every result under its number, what went wrong told, nobody left behind."""

import math
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from limits import HANG_S

from probes.base.errors import UnavailableError
from synth.portfolio.worker_pool import ProcessPool, cores


def gone(pids, within_s=100.0):
    until = time.monotonic() + within_s
    while any(psutil.pid_exists(pid) for pid in pids) and time.monotonic() < until:
        time.sleep(0.05)
    return not any(psutil.pid_exists(pid) for pid in pids)


def workers(pool):
    return [process.pid for process in pool._workers.values()]


def test_every_task_has_its_result_under_its_number():
    with ProcessPool(2, math.factorial) as pool:
        tickets = {pool.submit(number): number for number in range(9)}
        while len(pool.finished) < len(tickets):
            pool.wait()
        pids = workers(pool)
    assert pool.finished == {ticket: math.factorial(number) for ticket, number in tickets.items()}
    assert len(pids) == 2
    assert gone(pids)


def test_workers_start_where_temporary_files_have_long_names(tmp_path, monkeypatch):
    folder = tmp_path / ("long" * 25)
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    code = (
        "import math\nfrom synth.portfolio.worker_pool import ProcessPool\n"
        "with ProcessPool(1, math.factorial) as pool:\n"
        "    pool.submit(5)\n"
        "    pool.wait()\n"
        "    print(pool.finished)\n"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=HANG_S)
    assert done.stdout == "{0: 120}\n", done.stderr


def test_ctrl_c_while_workers_start_is_for_the_process_that_waits_alone():
    # The first process that is asked for waits until the server has loaded its modules.
    code = (
        "import math, os, signal, threading\nfrom synth.portfolio.worker_pool import ProcessPool\n"
        "threading.Timer(0.2, os.killpg, (0, signal.SIGINT)).start()\n"
        "with ProcessPool(1, math.factorial) as pool:\n"
        "    pool.submit(5)\n"
        "    pool.wait(float('inf'))\n"
        "    threading.Event().wait()\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        start_new_session=True,
    )
    # Its own traceback, and no other.
    assert done.stderr.count("Traceback") == done.stderr.count("KeyboardInterrupt") == 1, done.stderr


def test_what_a_task_raises_is_raised():
    with ProcessPool(1, math.factorial) as pool, pytest.raises(ValueError, match="negative"):
        pool.submit(-1)
        pool.wait()


def die(status):
    os._exit(status)


def test_a_worker_that_dies_is_told():
    with ProcessPool(1, die) as pool, pytest.raises(UnavailableError, match="ended before its work"):
        pool.submit(3)
        pool.wait()


def test_a_worker_that_dies_before_it_has_read_all_is_told():
    with ProcessPool(1, time.sleep) as pool:
        pool.submit(HANG_S)
        ((pipe, process),) = pool._workers.items()
        # Unread data of a dying process reset the connection.
        os.kill(process.pid, signal.SIGSTOP)
        pipe.send((1, 0.0))
        process.kill()
        with pytest.raises(UnavailableError, match="ended before its work"):
            pool.wait()


def test_a_worker_that_died_without_work_is_told_with_the_next_task():
    with ProcessPool(1, math.factorial) as pool:
        pool.submit(3)
        pool.wait()
        (process,) = pool._workers.values()
        process.kill()
        process.join()
        with pytest.raises(UnavailableError, match="ended before its work"):
            pool.submit(4)


def test_waiting_ends_in_time_and_leaving_ends_the_work():
    with ProcessPool(2, time.sleep) as pool:
        for _ in range(3):
            pool.submit(600)
        pool.wait(time.perf_counter() + 0.1)
        assert pool.finished == {}
        pids = workers(pool)
    assert gone(pids)


def test_workers_end_with_a_process_that_is_killed():
    code = (
        "import time\nfrom synth.portfolio.worker_pool import ProcessPool\n"
        "with ProcessPool(1, time.sleep) as pool:\n"
        "    pool.submit(600)\n"
        "    print(*[one.pid for one in pool._workers.values()], flush=True)\n"
        "    pool.wait()\n"
    )
    process = subprocess.Popen([sys.executable, "-P", "-c", code], stdout=subprocess.PIPE, text=True)
    pids = [int(word) for word in process.stdout.readline().split()]
    time.sleep(1.0)
    process.kill()
    process.wait()
    process.stdout.close()
    assert len(pids) == 1
    assert gone(pids)


def test_there_is_a_core():
    assert 1 <= cores() <= os.cpu_count()
