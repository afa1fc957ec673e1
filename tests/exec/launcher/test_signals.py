"""A signal to end waits until nothing is left half done."""

import os
import signal
import subprocess
import sys
import threading

import pytest
from limits import HANG_S

from exec.launcher.signals import deferred, unwinding

ENDS = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: SystemExit, signal.SIGHUP: SystemExit}


@pytest.mark.parametrize("number", ENDS)
def test_a_signal_raises_when_it_may(number):
    before, reached = signal.getsignal(number), []
    with pytest.raises(ENDS[number]) as caught, deferred() as deliver:
        os.kill(os.getpid(), number)
        reached.append("after the signal")
        deliver()
        reached.append("after deliver")
    assert reached == ["after the signal"]
    assert getattr(caught.value, "code", 128 + number) == 128 + number
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("number", ENDS)
def test_a_signal_that_comes_at_the_end_raises_after_it(number):
    done = []
    with pytest.raises(ENDS[number]), deferred():
        os.kill(os.getpid(), number)
        done.append("ended")
    assert done == ["ended"]


def test_a_handler_of_the_program_is_called_and_an_ignored_signal_stays_ignored():
    heard = []
    old = {
        signal.SIGTERM: signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number)),
        signal.SIGHUP: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    }
    try:
        with deferred():
            os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGTERM)
            assert heard == []
        assert heard == [signal.SIGTERM]
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def test_a_signal_that_nohup_ignores_does_not_unwind():
    reached, old = [], signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with unwinding():
            os.kill(os.getpid(), signal.SIGHUP)
            reached.append("after SIGHUP")
        assert reached == ["after SIGHUP"]
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        with pytest.raises(SystemExit), unwinding():
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGHUP, old)


def test_in_a_thread_no_handler_is_touched():
    found = []

    def look():
        with deferred() as deliver:
            deliver()
            found.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [signal.getsignal(signal.SIGTERM)]


IN_A_CALLBACK = """
import ctypes, signal, time
from exec.launcher.signals import hear_interrupts, unwinding

@ctypes.CFUNCTYPE(None)
def called():
    signal.raise_signal(signal.NUMBER)

hear_interrupts()
with unwinding():
    called()
    time.sleep(20)
    print("nobody heard")
"""


@pytest.mark.parametrize(
    ("number", "status"), [("SIGINT", -signal.SIGINT), ("SIGTERM", 128 + signal.SIGTERM)]
)
def test_a_signal_that_a_callback_from_c_swallows_is_heard_when_it_has_returned(number, status):
    code = IN_A_CALLBACK.replace("NUMBER", number)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG_S)
    assert (done.returncode, done.stdout) == (status, "")
    assert "Exception ignored" not in done.stderr
