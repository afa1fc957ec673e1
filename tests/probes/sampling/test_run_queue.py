import os
import time

import pytest

from probes.sampling.run_queue import waited_s


def test_the_second_number_is_the_wait_in_nanoseconds(tmp_path):
    (tmp_path / "schedstat").write_text("5000000 1500000000 7\n")
    assert waited_s(tmp_path / "schedstat") == pytest.approx(1.5)


@pytest.mark.parametrize("text", [None, "", "0\n", "some words here"])
def test_a_kernel_that_does_not_count_tells_of_no_wait(tmp_path, text):
    if text is not None:
        (tmp_path / "schedstat").write_text(text)
    assert waited_s(tmp_path / "schedstat") == 0.0


@pytest.mark.skipif(waited_s() == 0.0, reason="this kernel does not count waits")
def test_two_processes_that_want_one_core_wait_for_each_other():
    core = min(os.sched_getaffinity(0))
    waits = []

    def spin():
        os.sched_setaffinity(0, {core})
        before_s, until_s = waited_s(), time.monotonic() + 0.3
        while time.monotonic() < until_s:
            os.getppid()
        waits.append(waited_s() - before_s)

    pids = []
    for _ in range(2):
        if (pid := os.fork()) == 0:
            spin()
            os._exit(0 if waits[0] > 0.03 else 1)
        pids.append(pid)
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids] == [0, 0]
