"""Commands on a pseudo-terminal of their own, as a person at a screen sees them."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time

import pyte

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """The output of a command on its terminal, ``before`` and ``after`` the action, and its exit status."""

    def __init__(self, before, after, returncode):
        self.before, self.after, self.returncode = before, after, returncode

    @property
    def seen(self):
        return self.before + self.after

    @staticmethod
    def lines(text):
        """The lines without what steers the terminal."""
        return [
            line.rstrip() for line in _ESCAPES.sub("", text.replace("\r", "\n")).split("\n") if line.strip()
        ]

    def screen(self, columns=80, rows=100):
        """The lines that stand on a terminal of that size in the end, had it ``rows`` of them."""
        screen = pyte.Screen(columns, rows)
        pyte.Stream(screen).feed(self.seen)
        return [line.rstrip() for line in screen.display if line.strip()]


def run_on_terminal(
    arguments, columns=80, *, once="", act=None, cwd=None, program=("-m", "ccctl"), **variables
):
    """Run a command; once ``once`` has been written, ``act`` is called with the terminal."""
    main, sub = pty.openpty()
    resize(main, columns)
    env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-P", *program, *map(str, arguments)],
        stdin=sub,
        stdout=sub,
        stderr=sub,
        cwd=cwd,
        env={**env, "TERM": "xterm", **variables},
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(sub)
    seen, cut, deadline_s = b"", None, time.monotonic() + 240
    try:
        while time.monotonic() < deadline_s:
            if not select.select([main], [], [], 0.2)[0]:
                continue
            try:
                part = os.read(main, 1 << 16)
            except OSError:
                break
            seen += part
            if act is not None and cut is None and once.encode() in seen:
                cut = len(seen)
                act(main)
        returncode = process.wait(60)
    finally:
        process.kill()
        process.wait()
        os.close(main)
    cut = len(seen) if cut is None else cut
    return Terminal(seen[:cut].decode(errors="replace"), seen[cut:].decode(errors="replace"), returncode)


def resize(terminal, columns, rows=24):
    """Make the terminal that wide."""
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def press(keys):
    """Return an action that presses these keys on a terminal: ``\\x03`` is Ctrl-C."""
    return lambda terminal: os.write(terminal, keys.encode())
