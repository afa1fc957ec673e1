"""Being told to end: SIGTERM and SIGHUP unwind the stack as Ctrl-C does, so that what was begun is undone."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

__all__ = ["unwinding"]


@contextlib.contextmanager
def unwinding() -> Iterator[None]:
    """While the block runs, SIGTERM and SIGHUP raise SystemExit with the status that a shell expects."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
