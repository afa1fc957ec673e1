"""Handling of SIGTERM and SIGHUP like Ctrl-C: they unwind the stack, so that cleanup runs."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

__all__ = ["deferred", "hear_interrupts", "told_to_end", "unwinding"]

_heard: list[int] = []
# Delay before a swallowed signal is sent again: by then the C code has mostly returned.
_AGAIN_S = 0.05
# The previous hook of unraisable exceptions.
_before: list[Callable[[Any], object]] = []


def hear_interrupts() -> None:
    """Record Ctrl-C for ``told_to_end`` from here on, and forget earlier signals.

    An exception in a Python function called from C, as by LLVM during compilation, is swallowed. If a signal
    raised it, the signal is sent again.
    """
    _heard.clear()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
        if sys.unraisablehook is not _swallowed:
            _before.append(sys.unraisablehook)
            sys.unraisablehook = _swallowed


def told_to_end() -> int:
    """Return the exit status of a process ended by a signal, even if its exception was replaced; else 0.

    A C library that is interrupted while it loads, such as SciPy's solver, raises ImportError instead.
    """
    return 128 + _heard[0] if _heard else 0


def _swallowed(unraisable: Any) -> None:
    """Send the last signal again if it raised the exception, else call the previous hook."""
    if not _heard or not isinstance(unraisable.exc_value, KeyboardInterrupt | SystemExit):
        _before[-1](unraisable)
        return
    again = threading.Timer(_AGAIN_S, os.kill, (os.getpid(), _heard[-1]))
    again.daemon = True
    again.start()


def _interrupt(number: int, frame: FrameType | None) -> None:
    _heard.append(number)
    signal.default_int_handler(number, frame)


def _leave(number: int, frame: FrameType | None) -> None:
    _heard.append(number)
    raise SystemExit(128 + number)


@contextlib.contextmanager
def deferred() -> Iterator[Callable[[], None]]:
    """Hold back SIGINT, SIGTERM and SIGHUP within the block; yield a function that delivers them.

    So none of them raises in the middle of work that must be completed. They are also delivered at the end of
    the block. Each signal then runs its previous handler. SIGTERM and SIGHUP without one unwind the stack as
    in ``unwinding``.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    waiting: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    # The handler is None if it was not set from Python; such signals are not held back.
    found = {number: signal.getsignal(number) for number in numbers}
    before = {number: old for number, old in found.items() if old not in (signal.SIG_IGN, None)}

    def deliver() -> None:
        while waiting:
            number = waiting.pop(0)
            handler = before[signal.Signals(number)]
            (handler if callable(handler) else _leave)(number, None)

    for number in before:
        signal.signal(number, lambda number, _frame: waiting.append(number))
    try:
        yield deliver
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        deliver()


@contextlib.contextmanager
def unwinding() -> Iterator[None]:
    """Make SIGTERM and SIGHUP raise SystemExit with a shell's usual status within the block."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    before = {number: signal.signal(number, _leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
