"""The console: data and messages apart, nothing but plain text where nobody watches."""

import io
import json
import os
import pty
import re
import subprocess
import sys
import threading

import pytest

from ccctl import console


@pytest.fixture(autouse=True)
def settings():
    yield
    console.configure(quiet=False, verbose=0)


def test_data_goes_to_stdout_and_messages_to_stderr(capsys):
    console.data("rows")
    console.note("read")
    console.warn("odd")
    console.error("broken\ntwice", "mend it")
    found = capsys.readouterr()
    assert found.out == "rows\n"
    assert found.err == "read\nwarning: odd\nccctl: broken\nccctl: twice\nhint: mend it\n"


@pytest.mark.parametrize(
    ("quiet", "verbose", "expected"),
    [(False, 0, "note\n"), (False, 1, "note\ndetail\n"), (True, 0, ""), (True, 1, "")],
)
def test_quiet_and_verbose(quiet, verbose, expected, capsys):
    console.configure(quiet=quiet, verbose=verbose)
    console.note("note")
    console.detail("detail")
    console.error("always")
    assert capsys.readouterr().err == expected + "ccctl: always\n"


def test_a_summary_is_one_object(capsys):
    console.summary({"time_s": 1.5, "name": "µ"})
    assert json.loads(capsys.readouterr().out) == {"time_s": 1.5, "name": "µ"}


def test_numbers_are_set_to_the_right(capsys):
    console.table(("name", "size", "share"), [("a", 8, "7.5 %"), ("long name", 1024, "-")], title="sizes")
    assert capsys.readouterr().out.splitlines() == [
        "sizes",
        "name       size  share",
        "a             8  7.5 %",
        "long name  1024      -",
    ]


def test_a_table_without_rows_has_its_head(capsys):
    console.table(("a", "b"), [])
    assert capsys.readouterr().out == "a  b\n"


def test_nothing_moves_where_stderr_is_no_terminal(capsys):
    with console.progress("work", 2.0) as bar:
        bar.update(1.0, "half")
    console.next_step("ccctl show x.json")
    assert capsys.readouterr() == ("", "")


ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
SHOWN = """
from ccctl import console
console.table(("name", "size"), [("a", 8)])
with console.progress("work", 2.0) as bar:
    bar.update(1.0, "half")
console.next_step("ccctl show")
console.error("broken")
"""


def on_a_terminal(script, columns=80, **environment):
    main, sub = pty.openpty()
    env = {**os.environ, "TERM": "xterm", "COLUMNS": str(columns), **environment}
    env = {name: value for name, value in env.items() if value is not None}
    process = subprocess.Popen([sys.executable, "-P", "-c", script], stdout=sub, stderr=sub, env=env)
    os.close(sub)
    seen = io.BytesIO()
    while True:
        try:
            part = os.read(main, 4096)
        except OSError:
            break
        if not part:
            break
        seen.write(part)
    os.close(main)
    assert process.wait(60) == 0
    return seen.getvalue().decode()


LOGGED = """
import logging, time
from ccctl import console
with console.progress("work", 2.0):
    logging.getLogger("synth.kernels.compiled_loop").info("compiling %s", "a loop")
    time.sleep(0.3)
logging.getLogger("synth.kernels.compiled_loop").info("not shown")
"""


def test_what_synth_logs_stands_beside_the_bar():
    shown = on_a_terminal(LOGGED)
    assert "work compiling a loop" in shown
    assert "not shown" not in shown


HEARD = """
import logging
from ccctl import console
console.hear_libraries()
for quiet in (True, False):
    console.configure(quiet=quiet)
    logging.getLogger("probes.files.file_cache").warning("nothing is kept: %s", quiet)
    logging.getLogger("exec.benchmark.runner").info("not shown")
"""


def test_what_libraries_warn_of_is_shown_but_not_with_q():
    command = [sys.executable, "-P", "-c", HEARD]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == "warning: nothing is kept: False\n"


def test_a_terminal_gets_colour_and_the_next_step():
    seen = on_a_terminal(SHOWN, NO_COLOR=None)
    assert "next: ccctl show" in seen and "\x1b[31m" in seen


def test_no_color_is_obeyed():
    assert "\x1b[31m" not in on_a_terminal(SHOWN, NO_COLOR="1")


def test_a_dumb_terminal_gets_plain_lines():
    seen = on_a_terminal(SHOWN, TERM="dumb")
    assert "\x1b" not in seen
    assert "name  size" in seen


def test_no_cell_is_cut_on_a_narrow_terminal():
    script = "from ccctl import console; console.table(('a', 'b'), [('x' * 50, 'y' * 50)])"
    seen = on_a_terminal(script, columns=40)
    assert "x" * 50 in seen and "y" * 50 in seen


HINT = "needed for GPUs only: install it with pip"
WORDS = f"""
from ccctl import console
console.table(("what", "state", "hint"), [("CuPy", "note", "{HINT}"), ("x", 7, "")])
"""


@pytest.mark.parametrize("columns", [30, 36, 40, 60, 100])
def test_words_are_wrapped_in_their_column_where_the_terminal_is_narrow(columns):
    lines = [line.rstrip() for line in ESCAPES.sub("", on_a_terminal(WORDS, columns)).splitlines()]
    assert max(map(len, lines)) <= columns
    text = " ".join(" ".join(lines).split())
    assert all(word in text for word in HINT.split())
    # Wrapped text continues below its first word.
    begins = {line.index(word) for line in lines for word in ("hint", "needed") if word in line}
    assert len(begins) == 1


@pytest.mark.parametrize(
    "columns", [pytest.param(many, marks=[pytest.mark.long] * (many % 3)) for many in range(20, 60)]
)
def test_whatever_the_width_no_cell_is_cut(columns):
    rows = "[('in a host', 12, '1.53 us')] * 2"
    script = f"from ccctl import console; console.table(('link', 'GB/s', 'least'), {rows})"
    seen = ESCAPES.sub("", on_a_terminal(script, columns))
    assert "…" not in seen
    assert seen.count("1.53 us") == 2 or ("1.53" in seen and columns < 40)


def test_quiet_leaves_errors_what_fails_and_what_was_asked_for_as_data(capsys):
    console.configure(quiet=True)
    try:
        console.data("a row")
        console.table(["head"], [["cell"]])
        console.note("a note")
        console.warn("a warning")
        with console.spoken(False):
            console.data("nothing wrong")
        with console.spoken():
            console.data("the finding")
        console.data("another row")
        console.summary({"time_s": 1})
        console.error("it failed")
    finally:
        console.configure(quiet=False)
    told = capsys.readouterr()
    assert told.out == 'the finding\n{\n  "time_s": 1\n}\n'
    assert told.err == "ccctl: it failed\n"


def test_what_is_quoted_does_not_steer_the_terminal(capsys):
    console.error("a\x1b[2Jb\x9b\td\x00", "e\x07")
    assert capsys.readouterr().err == "ccctl: a\\x1b[2Jb\\x9b\\td\\x00\nhint: e\\x07\n"


@pytest.fixture
def waiting(monkeypatch):
    """A line that is due at once on a terminal, and what waits for it."""
    monkeypatch.setattr(console, "_waiting", console._Waiting())
    monkeypatch.setattr(console, "_FIRST_WORD_S", 0.0)
    monkeypatch.setattr(console, "_is_terminal", lambda stream: True)

    def timers():
        for thread in threading.enumerate():
            if isinstance(thread, threading.Timer):
                thread.join()

    return timers


def test_who_watches_is_told_what_goes_on_until_there_is_output(waiting, capsys):
    console.waiting("loading libraries")
    waiting()
    assert capsys.readouterr().err == "\rloading libraries …"
    console.waiting("a network")
    assert capsys.readouterr().err == "\ra network …" + 8 * " "
    console.note("it is there")
    assert capsys.readouterr().err == "\r" + 11 * " " + "\rit is there\n"
    console.waiting("nothing more")
    console.data("a result")
    waiting()
    assert capsys.readouterr() == ("a result\n", "")


def test_what_answers_at_once_says_nothing_before(waiting, monkeypatch, capsys):
    monkeypatch.setattr(console, "_FIRST_WORD_S", 3600.0)
    console.waiting("loading libraries")
    console.data("a result")
    waiting()
    assert capsys.readouterr() == ("a result\n", "")


@pytest.mark.parametrize("quiet", [True, False])
def test_nobody_is_told_to_wait_who_cannot_see_it_go(waiting, monkeypatch, capsys, quiet):
    monkeypatch.setattr(console, "_is_terminal", lambda stream: quiet)
    console.configure(quiet=quiet)
    try:
        console.waiting("loading libraries")
        waiting()
    finally:
        console.configure(quiet=False)
    assert capsys.readouterr() == ("", "")
