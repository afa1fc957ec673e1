"""Being told to end: SIGTERM and SIGHUP unwind the stack as Ctrl-C does, so that what was begun is undone."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

__all__ = ["hear_interrupts", "told_to_end", "unwinding"]

_heard: list[int] = []


def hear_interrupts() -> None:
    """Let ``told_to_end`` know of Ctrl-C from here on, and of nothing that was before."""
    _heard.clear()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)


def told_to_end() -> int:
    """The status of a process that a signal told to end, whatever became of its exception; 0: there was none.

    A library in C that is interrupted while it is loaded, such as SciPy's solver, raises ImportError instead.
    """
    return 128 + _heard[0] if _heard else 0


def _interrupt(number: int, frame: FrameType | None) -> None:
    _heard.append(number)
    signal.default_int_handler(number, frame)


@contextlib.contextmanager
def unwinding() -> Iterator[None]:
    """While the block runs, SIGTERM and SIGHUP raise SystemExit with the status that a shell expects."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, _frame: FrameType | None) -> None:
        _heard.append(number)
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
