"""What a run has measured is not lost, whatever ends it: it is written before the command leaves."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ccctl import console
from ccctl.errors import CcctlError
from ccctl.launch import started_by_mpi
from ccctl.signals import unwinding

__all__ = ["reason_of", "rescuing"]


@contextmanager
def rescuing(rescue: Callable[[str], str]) -> Iterator[None]:
    """While the block runs, ``rescue(why)`` is called before anything but success leaves it.

    An error, Ctrl-C, SIGTERM and SIGHUP all do. ``rescue`` writes what there is, and returns what became of
    it for the user, or nothing: an expected error gets it as its hint, a signal is told with it. Where
    ``rescue`` itself fails, that is told, and the status stays that of what ended the block.
    """
    try:
        if started_by_mpi():
            # The launcher ends the job: a rank that left alone would wait for the others in MPI_Finalize.
            yield
        else:
            with unwinding():
                yield
    except BaseException as error:
        if isinstance(error, SystemExit) and not error.code:
            raise
        why = reason_of(error)
        try:
            kept = rescue(why)
        except CcctlError as second:
            console.error(second.message, second.hint)
            kept = ""
        if isinstance(error, CcctlError):
            error.hint = kept or error.hint
        elif isinstance(error, KeyboardInterrupt | SystemExit) and why:
            console.error(f"ended by {why}", kept)
        raise


def reason_of(error: BaseException) -> str:
    """What ended a run, in a few words: a signal by its name, an error by the first line of its message."""
    if isinstance(error, KeyboardInterrupt):
        return "Ctrl-C"
    if isinstance(error, SystemExit):
        number = error.code - 128 if isinstance(error.code, int) else 0
        return signal.Signals(number).name if number in {int(one) for one in signal.Signals} else ""
    text = error.message if isinstance(error, CcctlError) else str(error)
    return (text.splitlines() or [type(error).__name__])[0]
