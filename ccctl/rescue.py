"""Rescue of a run's measurements: they are written before the command exits, whatever ends the run."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ccctl import console
from ccctl.errors import CcctlError, message_of
from exec.launcher import started_by_mpi, unwinding

__all__ = ["reason_of", "rescue_now", "rescuing"]


class _Once:
    """A rescue that runs at most once, on the first thread that calls it."""

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
                console.error(message_of(error), error.hint)
                return ""


# The rescue of the running block, if any.
_open: list[_Once] = []


def rescue_now(why: str) -> str:
    """Run the rescue of the running block before the process is ended; return its message, or ""."""
    return _open[-1](why) if _open else ""


@contextmanager
def rescuing(rescue: Callable[[str], str]) -> Iterator[None]:
    """Call ``rescue(why)`` if the block ends by an error, Ctrl-C, SIGTERM or SIGHUP.

    ``rescue`` writes the results so far and returns a message for the user, or "". The message becomes the
    hint of an expected error, or is reported with the signal. A failure of ``rescue`` itself is reported and
    does not change the exit status.
    """
    once = _Once(rescue)
    _open.append(once)
    try:
        if started_by_mpi():
            # A rank that exits alone waits for the others in MPI_Finalize; ``attached`` ends them all.
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
    """Return what ended a run: the name of a signal, or the first line of an error's message."""
    if isinstance(error, KeyboardInterrupt):
        return "Ctrl-C"
    if isinstance(error, SystemExit):
        number = error.code - 128 if isinstance(error.code, int) else 0
        return signal.Signals(number).name if number in {int(known) for known in signal.Signals} else ""
    text = error.message if isinstance(error, CcctlError) else str(error)
    return (text.splitlines() or [type(error).__name__])[0]
