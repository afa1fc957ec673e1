"""The only module that prints: data to stdout, messages and progress to stderr.

On a terminal, tables are drawn by rich; anywhere else they are plain aligned columns without boxes
or escapes, so that cron mail and pipes stay readable. Nothing heavy is imported until it is needed.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import IO, TYPE_CHECKING, Any, Protocol

from ccctl.errors import CannotWriteError
from probes.base import unsteered, unsteered_json, visible

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console, RenderableType
    from rich.progress import Progress as DrawnBar

__all__ = [
    "ProgressBar",
    "aligned",
    "configure",
    "data",
    "detail",
    "document",
    "doubt",
    "error",
    "flush",
    "hear_libraries",
    "hushed",
    "next_step",
    "next_with",
    "note",
    "progress",
    "prose",
    "raw",
    "read_in_pager",
    "spoken",
    "summary",
    "table",
    "waiting",
    "warn",
    "width",
]

_LONG_WORD = re.compile(r"\S{300,}")
# The most characters of a line, and of a cell.
_MOST_LINE, _MOST_CELL = 10_000, 500
# Table cells of at most this many characters are never wrapped.
_SHORT = 12
# Longer words, such as paths, may be folded where a table is wider than the terminal.
_LONG = 20
# Seconds between lines of progress where stderr is no terminal.
_PLAIN_S = 10.0
# Seconds without output before `waiting` prints its line.
_FIRST_WORD_S = 0.7
_doubts: list[str] = []
_settings = {"quiet": False, "verbose": 0}
# The progress bars on the screen.
_bars: list[DrawnBar] = []


def configure(*, quiet: bool | None = None, verbose: int | None = None) -> None:
    """Apply ``-q`` and ``-v``; None leaves a setting unchanged."""
    if quiet is not None:
        _settings["quiet"] = quiet
    if verbose is not None:
        _settings["verbose"] = verbose


def data(text: str) -> None:
    """Print a line of results on stdout; ``-q`` silences it.

    A newline within the text is shown escaped, so that the output stays one line.
    """
    if not _settings["quiet"]:
        _print(visible(text, _MOST_LINE))


def document(text: str) -> None:
    """Print a text of several lines from ccctl itself, such as a page of help; ``-q`` silences it."""
    if not _settings["quiet"]:
        _print(unsteered(text))


def prose(text: str) -> None:
    """Print a paragraph on stdout, wrapped to the terminal; ``-q`` silences it."""
    if (most := width()) is not None:
        import textwrap

        for line in textwrap.wrap(visible(text), most, break_long_words=False, break_on_hyphens=False):
            data(line)
    else:
        data(text)


def raw(content: bytes) -> None:
    """Write an artifact to stdout, byte for byte."""
    _waiting.over()
    flush()
    with _writing_stdout():
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()


def read_in_pager(page: Path) -> bool:
    """Show a manual page with man or mandoc if stdout is a terminal; return whether one did."""
    if not _is_terminal(sys.stdout) or _settings["quiet"]:
        return False
    import shutil
    import subprocess

    _waiting.over()
    flush()
    for program, option in (("man", "-l"), ("mandoc", "-a")):
        if shutil.which(program) is None:
            continue
        # Leave Ctrl-C to the pager.
        before = signal.signal(signal.SIGINT, lambda *_: None)
        try:
            if subprocess.run([program, option, page], stderr=subprocess.DEVNULL).returncode == 0:
                return True
        except OSError:
            continue
        finally:
            signal.signal(signal.SIGINT, before)
    return False


def flush() -> None:
    """Flush stdout."""
    _waiting.over()
    with _writing_stdout():
        sys.stdout.flush()


def summary(values: dict[str, Any]) -> None:
    """Print the ``--json`` summary, even with ``-q``: one object on stdout, keys in snake_case with units."""
    import json

    if _doubts:
        values = {**values, "findings": [*values.get("findings", ()), *_doubts]}
        _doubts.clear()
    _print(unsteered_json(json.dumps(values, indent=2, ensure_ascii=False)))


def table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str = "") -> None:
    """Print a table on stdout, with numeric columns right-aligned; ``-q`` silences it.

    On a terminal rich draws it and wraps cells of several words to fit. If the table is still too wide, it is
    printed as plain lines. No cell is ever cut.
    """
    if _settings["quiet"]:
        return
    if (most := width()) is not None and _rich_table(columns, _cells(rows), title, most):
        return
    lines = aligned(columns, rows)
    for line in [title, *lines] if title else lines:
        data(line)


def width() -> int | None:
    """Return the width of the terminal on stdout in characters; None where stdout is no terminal."""
    if not _is_terminal(sys.stdout):
        return None
    import shutil

    return shutil.get_terminal_size().columns - 2


def aligned(
    columns: Sequence[str], rows: Sequence[Sequence[object]], least: Sequence[int] | None = None
) -> list[str]:
    """Return the lines of a plain table: the names of the columns, then each row.

    A column is as wide as its longest cell, and at least ``least``, so that rows made in separate calls line
    up.
    """
    cells = _cells(rows)
    right = _rights(cells, len(columns))
    widths = [max(map(len, [name, *(row[i] for row in cells)]), default=0) for i, name in enumerate(columns)]
    if least is not None:
        widths = [max(pair) for pair in zip(widths, least, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in [list(columns), *cells]
    ]


def note(text: str) -> None:
    """Print a message on stderr that ``-q`` silences."""
    if not _settings["quiet"]:
        _message(text, style="")


def detail(text: str) -> None:
    """Print a message on stderr that only ``-v`` shows."""
    if _settings["verbose"] and not _settings["quiet"]:
        _message(text, style="dim")


def warn(text: str) -> None:
    """Print a warning on stderr that the user may have to act on; ``-q`` silences it."""
    if not _settings["quiet"]:
        _message(f"warning: {text}", style="yellow")


def doubt(text: str) -> None:
    """Warn of a doubt about the result, and add it to the findings of the ``--json`` summary."""
    _doubts.append(text)
    warn(text)


def error(text: str, hint: str = "") -> None:
    """Print why the command failed, and a hint, on stderr; never silenced."""
    for line in text.split("\n"):
        _message(f"ccctl: {_shortened(line)}", style="red")
    if hint:
        _message(f"hint: {_shortened(hint)}", style="")


def _shortened(text: str) -> str:
    """Cut words of 300 or more characters, which users may pass, and return the text."""
    return _LONG_WORD.sub(lambda word: f"{word[0][:60]}… ({len(word[0])} characters)", text)


@cache
def hear_libraries() -> None:
    """Print the log warnings of probes, synth and exec through ``warn`` from now on.

    Compiling loops takes seconds and is announced once, unless a progress bar shows it.
    """
    import logging

    class Warnings(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            warn(record.getMessage())

    command = os.getpid()

    class Compiling(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.levelno < logging.WARNING and not _bars and os.getpid() == command:
                loops.removeHandler(self)
                note("compiling loops, once on this machine: seconds, or a minute where there is much to do")

    for name in ("probes", "synth", "exec"):
        logging.getLogger(name).addHandler(Warnings(logging.WARNING))
    loops = logging.getLogger("synth.kernels.compiled_loop")
    loops.addHandler(Compiling())
    loops.setLevel(logging.INFO)


@contextmanager
def hushed() -> Iterator[None]:
    """Silence messages below errors while the block runs, unless ``-v`` is given."""
    before = _settings["quiet"]
    _settings["quiet"] = before or not _settings["verbose"]
    try:
        yield
    finally:
        _settings["quiet"] = before


@contextmanager
def spoken(wanted: bool = True) -> Iterator[None]:
    """Print the block's output despite ``-q`` if ``wanted``, because it explains a failure."""
    before = _settings["quiet"]
    _settings["quiet"] = before and not wanted
    try:
        yield
    finally:
        _settings["quiet"] = before


def next_step(command: str) -> None:
    """Print the next command to type as the last line, if on a terminal."""
    if _is_terminal(sys.stdout) and not _settings["quiet"]:
        _message(f"next: {command}", style="dim")


def next_with(output: str | None, then: str, name: str) -> None:
    """Print the next command: ``then`` with the written artifact's file in place of {}.

    If no file was written, suggest the same command again with ``-o name``.
    """
    import shlex

    if output is None:
        next_step(f"{shlex.join(['ccctl', *sys.argv[1:]])} -o {name}")
    elif output != "-":
        next_step(then.format(shlex.quote(output)))


class ProgressBar(Protocol):
    """A running progress bar."""

    def update(self, done: float, text: str = "") -> None:
        """Show how much of the total is done, and optionally the current activity."""


class _Silent:
    def update(self, done: float, text: str = "") -> None:
        """Do nothing."""


class _Plain:
    """Progress as an occasional line where stderr is no terminal; short work prints none."""

    def __init__(self, label: str, total: float) -> None:
        self._label, self._total = label, total
        self._shown_s = time.monotonic()

    def update(self, done: float, text: str = "") -> None:
        now_s = time.monotonic()
        if now_s - self._shown_s >= _PLAIN_S:
            self._shown_s = now_s
            share = 100 * done / self._total if self._total else 100.0
            note(f"{self._label}: {share:.0f} % done{f', {text}' if text else ''}")


def waiting(text: str) -> None:
    """Show ``text`` on a terminal if nothing is printed within ``_FIRST_WORD_S``.

    The time counts from the start of the process. The first output replaces the line; another call before
    that changes its text.
    """
    if not _settings["quiet"] and _is_terminal(sys.stderr):
        _waiting.says(text)


class _Waiting:
    """The line that is shown until the first output, written by a timer thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._text, self._drawn, self._over = "", "", False

    def says(self, text: str) -> None:
        with self._lock:
            self._text = f"{visible(text)} …"
            if self._over:
                return
            if self._drawn:
                self._draw(self._text)
            elif self._timer is None:
                self._timer = threading.Timer(max(0.0, _FIRST_WORD_S - _age_s()), self._late)
                self._timer.daemon = True
                self._timer.start()

    def over(self) -> None:
        """Remove the line before the first output, and show none from then on."""
        if self._over:
            return
        with self._lock:
            self._over = True
            if self._timer is not None:
                self._timer.cancel()
            if self._drawn:
                self._draw("")

    def _late(self) -> None:
        with self._lock:
            if not self._over and not _settings["quiet"]:
                self._draw(self._text)

    def _draw(self, text: str) -> None:
        blanks = " " * (len(self._drawn) - len(text))
        sys.stderr.write(f"\r{text}{blanks}" + ("" if text else "\r"))
        sys.stderr.flush()
        self._drawn = text


_waiting = _Waiting()


def _age_s() -> float:
    """Return the seconds since this process began, from /proc; 0 if unknown."""
    try:
        with open("/proc/self/stat", encoding="ascii", errors="replace") as file:  # noqa: PTH123 - pathlib takes longer
            ticks = int(file.read().rpartition(")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return 0.0


@contextmanager
def progress(label: str, total: float, below: Callable[[], Sequence[str]] = tuple) -> Iterator[ProgressBar]:
    """Show a progress bar on stderr while the block runs, with the lines of ``below`` under it.

    ``below`` is called several times a second, on another thread. Log messages of synth, such as the loop
    being compiled, stand beside the bar until the next update. Where stderr is no terminal, a plain line is
    printed every ten seconds.
    """
    if _settings["quiet"]:
        yield _Silent()
        return
    if not _is_terminal(sys.stderr):
        yield _Plain(label, total)
        return
    import logging

    from rich import progress as bars
    from rich.table import Column
    from rich.text import Text

    _waiting.over()
    screen = _rich(sys.stderr)

    class Drawn(bars.Progress):
        def get_renderables(self) -> Iterator[RenderableType]:
            yield self.make_tasks_table(self.tasks)
            most = max(0, screen.size.height - 3)
            for line in list(below())[:most]:
                yield Text(visible(line), no_wrap=True, overflow="ellipsis")

    columns = (
        bars.TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, ratio=1)),
        bars.BarColumn(bar_width=20),
        bars.TaskProgressColumn(),
        bars.TimeRemainingColumn(),
    )
    # Rich would redirect stdout to stderr by default while the bar runs.
    with Drawn(*columns, console=screen, transient=True, redirect_stdout=False, expand=True) as drawn:
        task = drawn.add_task(visible(label), total=total)
        _bars.append(drawn)

        class Bar:
            def update(self, done: float, text: str = "") -> None:
                drawn.update(task, completed=done, description=visible(f"{label} {text}".strip()))

        class Aside(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                if record.levelno < logging.WARNING:
                    drawn.update(task, description=visible(f"{label} {record.getMessage()}"))

        logger, aside = logging.getLogger("synth"), Aside()
        logger.addHandler(aside)
        logger.setLevel(logging.INFO)
        try:
            yield Bar()
        finally:
            logger.removeHandler(aside)
            _bars.remove(drawn)


def _print(text: str) -> None:
    """Print a line on stdout, above the progress bar if both share a terminal."""
    _waiting.over()
    if _bars and _one_terminal():
        from rich.text import Text

        # Rich must print it: only rich knows how many lines the bar takes. The terminal wraps long lines.
        _bars[-1].console.print(Text(text.removesuffix("\n")), soft_wrap=True)
    else:
        _write(text)


def _write(text: str) -> None:
    with _writing_stdout():
        sys.stdout.write(text if text.endswith("\n") else text + "\n")


def _cells(rows: Sequence[Sequence[object]]) -> list[list[str]]:
    return [["" if cell is None else visible(str(cell), _MOST_CELL) for cell in row] for row in rows]


def _rights(cells: list[list[str]], columns: int) -> list[bool]:
    return [all(_numeric(row[i]) for row in cells) for i in range(columns)]


@contextmanager
def _writing_stdout() -> Iterator[None]:
    """Turn a full disk behind stdout into an expected error; let a closed pipe pass."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CannotWriteError(f"stdout: {error.strerror}") from error


def _rich_table(columns: Sequence[str], cells: list[list[str]], title: str, most: int) -> bool:
    """Draw the table with rich if every word fits into ``most`` characters; return whether it did."""
    right = _rights(cells, len(columns))
    by_column = [[name, *(row[at] for row in cells)] for at, name in enumerate(columns)]
    whole = [max(map(len, column)) for column in by_column]
    # Keep numbers with their unit, and short cells, on one line.
    wraps = [not numbers and size > _SHORT for numbers, size in zip(right, whole, strict=True)]
    least = [
        max((min(len(word), _LONG) for cell in column for word in cell.split()), default=0)
        if wrapped
        else size
        for column, size, wrapped in zip(by_column, whole, wraps, strict=True)
    ]
    around = 3 * len(columns) + 1
    fits = sum(whole) + around <= most
    if not fits and sum(least) + around > most:
        return False
    from rich import box
    from rich.table import Table
    from rich.text import Text

    _waiting.over()
    drawn = Table(title=visible(title) or None, box=box.SIMPLE_HEAD, title_justify="left")
    for name, to_right, wrapped, narrow in zip(columns, right, wraps, least, strict=True):
        drawn.add_column(
            name,
            justify="right" if to_right else "left",
            no_wrap=fits or not wrapped,
            min_width=None if fits else narrow,
            overflow="fold",
        )
    for row in cells:
        drawn.add_row(*map(Text, row))
    _rich(sys.stdout).print(drawn)
    return True


def _message(text: str, *, style: str) -> None:
    _waiting.over()
    text = visible(text, _MOST_LINE)
    if not style or not _is_terminal(sys.stderr) or not _colour():
        sys.stderr.write(text + "\n")
        return
    from rich.text import Text

    _rich(sys.stderr).print(Text(text, style=style))


def _rich(stream: IO[str]) -> Console:
    from rich.console import Console

    return Console(file=stream, color_system="auto" if _colour() else None, highlight=False)


def _colour() -> bool:
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _is_terminal(stream: IO[str]) -> bool:
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def _one_terminal() -> bool:
    """Return whether stdout and stderr are the same terminal."""
    return _is_terminal(sys.stdout) and os.path.sameopenfile(1, 2)


def _numeric(cell: str) -> bool:
    try:
        float(cell.rstrip("%x ") or "0")
    except ValueError:
        return cell in ("-", "N/A")
    return True
