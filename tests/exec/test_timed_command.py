"""A user's command is given its values and bounded in time, and what it prints last is its time."""

import os
import sys
import time

import pytest

from exec.timed_command import seconds_of, words_of
from probes.base.errors import DataError, MissingInputError, TimeoutExpired, UsageError


def shell(text):
    return ["sh", "-c", text]


def test_values_stand_where_their_names_stood_and_no_shell_reads_them():
    assert words_of("train --bucket {bytes} 'a b' x={bytes}", {"bytes": "8; rm"}) == [
        "train", "--bucket", "8; rm", "a b", "x=8; rm",
    ]  # fmt: skip
    with pytest.raises(UsageError, match=r"measure: expected \{bytes\} in it"):
        words_of("train", {"bytes": "8"})
    with pytest.raises(UsageError, match="expected a command line"):
        words_of("train '{bytes}", {"bytes": "8"})


@pytest.mark.parametrize("printed", ["0.25", "warm-up\\n0.25\\n\\n", "x" * 100_000 + "\\n 0.25 "])
def test_the_last_line_is_the_time(printed):
    script = f"import sys; sys.stdout.write('{printed}')"
    assert seconds_of([sys.executable, "-c", script], 60) == 0.25


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        (shell("echo 0.1; echo slow"), DataError, "expected seconds > 0 on its last line, found 'slow'"),
        (shell("echo 0"), DataError, "found '0'"),
        (shell("echo nan"), DataError, "found 'nan'"),
        (shell("true"), DataError, "found ''"),
        (shell("echo 0.1; exit 3"), DataError, "ended with status 3; its last line: '0.1'"),
        (shell("kill -9 $$"), DataError, "ended with signal 9"),
        (["no-such-program"], MissingInputError, "no-such-program: cannot be started"),
    ],
)
def test_what_went_wrong_is_told_with_the_line(words, error, message):
    with pytest.raises(error, match=message):
        seconds_of(words, 60)


def test_what_takes_too_long_ends_with_all_that_it_started(tmp_path):
    pid = tmp_path / "pid"
    with pytest.raises(TimeoutExpired, match="not done after 1 s"):
        seconds_of(shell(f"sleep 600 & echo $! > {pid}; wait"), 1.0)
    number = int(pid.read_text())
    for _ in range(200):
        if not alive(number):
            return
        time.sleep(0.05)
    raise AssertionError("its child still runs")


def alive(number):
    """Whether it runs; a zombie whose new parent has not yet looked at it does not."""
    try:
        os.kill(number, 0)
        with open(f"/proc/{number}/stat") as file:  # noqa: PTH123
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
