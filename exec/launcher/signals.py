"""Handling of SIGTERM and SIGHUP like Ctrl-C: they unwind the stack, so that cleanup runs."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any

__all__ = ["deferred", "handlers_of", "hear_interrupts", "told_to_end", "unwinding"]

_heard: list[int] = []
# Delay before a swallowed signal is sent again. A user does not notice it, and the C code has mostly returned
# by then. If it has not, the signal is swallowed once more, and sent again after the next delay.
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
    """Return this process's exit status, 128 + number, if a signal told it to end; else 0.

    Callers ask here because the exception does not always say so. For instance, a C library that a signal
    interrupts while it loads raises ImportError instead.
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

    So no signal raises in the middle of work that must be completed. Signals are also delivered at the end of
    the block. Each runs the handler that was set before the block. If none was set, SIGTERM and SIGHUP unwind
    the stack as in ``unwinding``. Ignored signals stay ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    waiting: list[int] = []
    before = handlers_of((signal.SIGINT, signal.SIGTERM, signal.SIGHUP))

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
    """Make SIGTERM and SIGHUP raise SystemExit with a shell's usual status within the block.

    Ignored signals stay ignored, so a command under nohup outlives its terminal.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = handlers_of((signal.SIGTERM, signal.SIGHUP))
    for number in before:
        signal.signal(number, _leave)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def handlers_of(numbers: Iterable[signal.Signals]) -> dict[signal.Signals, Any]:
    """Return the handler of each signal that is neither ignored nor handled by C code alone."""
    found = {number: signal.getsignal(number) for number in numbers}
    return {number: old for number, old in found.items() if old not in (signal.SIG_IGN, None)}
