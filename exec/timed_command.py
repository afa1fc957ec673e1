"""Run a user's command that measures something and prints the seconds on its last line."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Mapping

from probes.base import DataError, MissingInputError, TimeoutExpired, UsageError, decimal, quoted

__all__ = ["seconds_of", "words_of"]

# About 30 years: a larger number on the last line is no duration.
_LONGEST_S = 1e9
# Only the end of the output is read, so that a command that prints a lot does not fill the memory.
_LAST_BYTES = 1 << 16


def words_of(command: str, values: Mapping[str, str]) -> list[str]:
    """Return the words of a command line with each ``{name}`` replaced by its value; uses no shell.

    Raises UsageError if quotes do not match, or if one of the names does not occur.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(
            f": expected a command line, found {quoted(command)}: {error}", argument="measure"
        ) from error
    for name, value in values.items():
        if not any(f"{{{name}}}" in word for word in words):
            raise UsageError(f": expected {{{name}}} in it, found {quoted(command)}", argument="measure")
        words = [word.replace(f"{{{name}}}", value) for word in words]
    return words


def seconds_of(words: list[str], timeout_s: float) -> float:
    """Run a command and return the positive number on the last line that it prints to stdout.

    The command shares this process's stderr. When it ends, all processes of its session are killed. Raises
    TimeoutExpired after ``timeout_s``, MissingInputError if the program cannot be started, and DataError,
    which shows the line, if the command fails or the line is not a positive number.
    """
    with tempfile.TemporaryFile() as out:
        try:
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, start_new_session=True)
        except (OSError, ValueError) as error:
            raise MissingInputError(f"{words[0]}: cannot be started: {error}") from error
        try:
            status = process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise TimeoutExpired(f"{shlex.join(words)}: not done after {timeout_s:g} s") from error
        finally:
            # Kill the whole session: ranks that a launcher started must not outlive it.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        size = out.seek(0, os.SEEK_END)
        out.seek(max(0, size - _LAST_BYTES))
        lines = out.read().decode("utf-8", "replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    if status != 0:
        ended = f"status {status}" if status > 0 else f"signal {-status}"
        raise DataError(shlex.join(words), [f"ended with {ended}; its last line: {quoted(last)}"])
    found = decimal(last, 0.0, _LONGEST_S)
    if not found:
        raise DataError(
            shlex.join(words),
            [f"expected seconds > 0 on its last line, found {quoted(last)}"],
            hint="It must print the seconds of an iteration, such as 0.215, as its last line.",
        )
    return found
