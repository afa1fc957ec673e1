"""ccctl inside this process: its own entry, with our streams and the status that it would end with."""

from __future__ import annotations

import functools
import io
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass

import typer

import ccctl.main
from ccctl import console
from ccctl.errors import INTERNAL, CcctlError, exit_status

__all__ = ["Ended", "call", "call_library"]


@dataclass(frozen=True)
class Ended:
    """The exit status of a command and what it printed."""

    status: int
    stdout: bytes
    stderr: str


# typer reads the parameters of every callback anew at each call: a third of the time of a short command.
typer.main.get_params_from_function = functools.cache(typer.main.get_params_from_function)


def call(*arguments: str, stdin: bytes = b"") -> Ended:
    """Run ``ccctl ARGUMENTS``."""

    def run() -> int:
        sys.argv = ["ccctl", *arguments]
        try:
            ccctl.main.main()
        except SystemExit as leaving:
            return leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
        return 0

    return _captured(run, stdin)


def call_library(function: Callable[[], object]) -> Ended:
    """Call what a command would call first, with the same way from error to status.

    It is for files whose command goes on to start ranks or namespaces.
    """

    def run() -> int:
        try:
            function()
        except CcctlError as error:
            console.error(error.message, error.hint)
            return exit_status(error)
        except MemoryError:
            console.error("there is not enough memory on this machine for that")
            return 69
        except Exception:
            traceback.print_exc()
            return INTERNAL
        return 0

    return _captured(run, b"")


def _captured(run: Callable[[], int], stdin: bytes) -> Ended:
    before = sys.stdin, sys.stdout, sys.stderr, sys.argv
    streams = [io.TextIOWrapper(io.BytesIO(content), encoding="utf-8") for content in (stdin, b"", b"")]
    sys.stdin, sys.stdout, sys.stderr = streams
    console.configure(quiet=False, verbose=0)
    try:
        status = run()
        for stream in streams[1:]:
            stream.flush()
    finally:
        sys.stdin, sys.stdout, sys.stderr, sys.argv = before
    out, err = (stream.buffer.getvalue() for stream in streams[1:])
    return Ended(status, out, err.decode(errors="replace"))
