"""Rescues what a run has measured: it is written before the command leaves, whatever ends it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ccctl import console
from ccctl.errors import CcctlError, told
from exec.launcher import started_by_mpi, unwinding

__all__ = ["reason_of", "rescue_now", "rescuing"]


class _Once:
    """A rescue that is carried out at most once, by whichever thread comes first."""

    def __init__(self, rescue: Callable[[str], str]) -> None:
        self._rescue, self._lock, self._done = rescue, threading.Lock(), False

    def __call__(self, why: str) -> str:
        with self._lock:
            if self._done:
                return ""
            self._done = True
            try:
                return self._rescue(why)
            except CcctlError as error:
                console.error(told(error), error.hint)
                return ""


# The rescue of the block that runs now, where there is one.
_open: list[_Once] = []


def rescue_now(why: str) -> str:
    """Carry out the rescue of the block that runs now, for a process that is about to be ended from outside.

    Returns what became of what there was, or nothing.
    """
    return _open[-1](why) if _open else ""


@contextmanager
def rescuing(rescue: Callable[[str], str]) -> Iterator[None]:
    """While the block runs, ``rescue(why)`` is called before anything but success leaves it.

    An error, Ctrl-C, SIGTERM and SIGHUP all do. ``rescue`` writes what there is, and returns what became of
    it for the user, or nothing: an expected error gets it as its hint, a signal is reported with it. Where
    ``rescue`` itself fails, that is reported, and the status stays that of what ended the block.
    """
    once = _Once(rescue)
    _open.append(once)
    try:
        if started_by_mpi():
            # A rank that left alone would wait for the others in MPI_Finalize: ``attached`` ends them all.
            yield
        else:
            with unwinding():
                yield
    except BaseException as error:
        if isinstance(error, SystemExit) and not error.code:
            raise
        why = reason_of(error)
        kept = once(why)
        if isinstance(error, CcctlError):
            error.hint = kept or error.hint
        elif isinstance(error, KeyboardInterrupt | SystemExit) and why:
            console.error(f"ended by {why}", kept)
        raise
    finally:
        _open.remove(once)


def reason_of(error: BaseException) -> str:
    """Return what ended a run, in a few words: a signal by its name, an error by the first line of
    its message.
    """
    if isinstance(error, KeyboardInterrupt):
        return "Ctrl-C"
    if isinstance(error, SystemExit):
        number = error.code - 128 if isinstance(error.code, int) else 0
        return signal.Signals(number).name if number in {int(one) for one in signal.Signals} else ""
    text = error.message if isinstance(error, CcctlError) else str(error)
    return (text.splitlines() or [type(error).__name__])[0]
