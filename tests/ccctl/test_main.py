"""The command line as a whole: start, usage, streams, interruption, the way from error to status."""

import os
import pwd
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from limits import HANG_S

from ccctl import main as command_line
from ccctl.errors import (
    EXIT_STATUS,
    CannotWriteError,
    CcctlError,
    ConfigError,
    DataError,
    FoundProblem,
    LockHeldError,
    LostRankError,
    MissingInputError,
    TimeoutExpired,
    UnavailableError,
    UndecidedError,
    UsageError,
    WrongResultsError,
    exit_status,
)

HEAVY = [
    "numpy",
    "numba",
    "scipy",
    "pulp",
    "mpi4py",
    "cupy",
    "rich",
    "msgspec",
    "psutil",
    "pynvml",
    "synth",
    "exec.program",
    "exec.benchmark",
    "exec.launcher.session",
    "exec.launcher.protocol",
]


RING = ("--network", "ring:4", "--bandwidth", "1GB/s")
FUSED = ("--ranks", "4", "--bandwidth", "1GB/s")


@pytest.fixture
def run_in_process(monkeypatch, capsys):
    """A function that runs a command line in this process: (exit status, what it said on stderr)."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["ccctl", *words])
        status = command_line._run()
        return status, capsys.readouterr().err

    return run


def test_help_is_light():
    script = (
        "import sys; sys.argv = ['ccctl', '--help']\n"
        "from ccctl.__main__ import main\n"
        "try: main()\n"
        f"finally: print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    assert "Usage: ccctl" in done.stdout


def test_version_is_one_line(run_ccctl):
    done = run_ccctl("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("ccctl ") and done.stdout.count("\n") == 1


def test_no_command_shows_the_help_and_is_a_usage_error(run_ccctl):
    done = run_ccctl()
    assert done.returncode == 2
    assert "Usage: ccctl" in done.stderr and done.stdout == ""


@pytest.mark.parametrize("command", ["", "lab", "training"])
def test_lists_of_commands_are_whole_on_80_columns(run_ccctl, command):
    done = run_ccctl(*command.split(), "--help", COLUMNS="80")
    listed = done.stdout.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
    assert listed
    assert all(len(line) <= 80 and not line.endswith("...") for line in listed), listed


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_is_asked_for_in_two_ways(run_ccctl, option):
    for arguments in ([option], ["show", option]):
        done = run_ccctl(*arguments)
        assert done.returncode == 0
        assert "Usage: ccctl" in done.stdout and done.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (["bake"], "No such command 'bake'", "see ccctl --help"),
        (["show"], "Missing argument 'ARTIFACT…'", "see ccctl show --help"),
        (["show", "--cake", "x"], "No such option: --cake", "see ccctl show --help"),
        (["synth", "--bogus=1", "-n", "4"], "No such option: --bogus", "see ccctl synth --help"),
        (
            ["synth", "--netwrok=x"],
            "No such option: --netwrok; did you mean '--network'?",
            "see ccctl synth --help",
        ),
        (
            ["synth", "-network", "x"],
            "No such option: -network; did you mean '--network'?",
            "see ccctl synth --help",
        ),
        (
            ["order", "--network", "ring:4"],
            "No such option: --network",
            "ccctl order NETWORK|PROFILE takes it without an option; see ccctl order --help",
        ),
        (["snyth"], "No such command 'snyth'. Did you mean 'synth'?", "see ccctl --help"),
        (
            ["synth", "--chunk-size", "1M"],
            "No such option: --chunk-size; did you mean '--chunk'?",
            "see ccctl synth --help",
        ),
        (
            ["synth", "--num-chunks=4"],
            "No such option: --num-chunks; did you mean '--chunks'?",
            "see ccctl synth --help",
        ),
        (
            ["synth", "--message_size=4"],
            "No such option: --message_size; did you mean '--size'?",
            "see ccctl synth --help",
        ),
        (["relay"], "No such command 'relay'; did you mean 'training stragglers'?", "see ccctl --help"),
        (["version"], "No such command 'version'; did you mean '--version'?", "see ccctl --help"),
        (["--hlep"], "No such option: --hlep; did you mean '--help'?", "see ccctl --help"),
        (["bench", "-np", "4"], "No such option: -np; did you mean '-n'?", "see ccctl bench --help"),
        (["bench", "-np4"], "No such option: -np4; did you mean '-n'?", "see ccctl bench --help"),
        (
            ["bench", "-collective", "all_reduce"],
            "No such option: -collective; did you mean '--collective'?",
            "see ccctl bench --help",
        ),
        (["bench", "-n"], "Option '-n' requires an argument", "see ccctl bench --help"),
        (["lab", "run", "--on"], "Option '--on' requires an argument", "see ccctl lab run --help"),
        (["bench", "-f", "1"], "'-f' / '--factor': 1 is less than 2", "see ccctl bench --help"),
        (["bench", "-n", "65537"], "65537 is more than 65536", "see ccctl bench --help"),
        (
            ["synth", "ring:4"],
            "Missing option '--network'; did you mean '--network ring:4'?",
            "see ccctl synth --help",
        ),
        (["show", "--lines", "few", "x"], "'few' is not a whole number", "see ccctl show --help"),
        (["schema", "cake"], "KIND: expected one of topology, ", ""),
    ],
)
def test_usage_errors_are_two_lines_and_status_2(run_ccctl, arguments, message, hint):
    done = run_ccctl(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert lines[0].startswith("ccctl: ") and message in lines[0]
    assert lines[1:] == ([f"hint: {hint}"] if hint else [])


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["synth", "--network", "trous:4x4"], "torus"),
        (["synth", "--network", "dgx-a10"], "dgx-a100"),
        (["synth", *RING, "--collective", "AllRedcue"], "all_reduce"),
        (["synth", *RING, "--method", "gredy"], "greedy"),
        (["synth", *RING, "--solver", "higs"], "highs"),
        (["training", "fusion", "resnet50", *FUSED], "resnet-50"),
        (["training", "fusion", "resnet-50", *FUSED, "--method", "dera"], "dear"),
        (["training", "averaging", *RING[1:], "--pattern", "butterfli"], "butterfly"),
        (["schema", "profil"], "profile"),
        (["completion", "zhs"], "zsh"),
    ],
)
def test_an_unknown_word_is_told_with_what_may_be_meant(run_in_process, words, meant):
    status, said = run_in_process(*words)
    assert status == 2
    assert f"hint: did you mean {meant!r}?" in said


TABLE = {
    FoundProblem: 1,
    LostRankError: 1,
    WrongResultsError: 1,
    UsageError: 2,
    DataError: 65,
    MissingInputError: 66,
    UnavailableError: 69,
    CcctlError: 70,
    CannotWriteError: 73,
    LockHeldError: 75,
    UndecidedError: 75,
    ConfigError: 78,
    TimeoutExpired: 124,
}


@pytest.mark.parametrize("error", TABLE, ids=lambda cls: cls.__name__)
def test_every_error_has_its_status(error):
    assert set(TABLE) - {CcctlError} == set(EXIT_STATUS)
    made = error("f", ["wrong"]) if issubclass(error, DataError) else error("wrong")
    assert exit_status(made) == TABLE[error]
    assert (
        exit_status(
            type("Special", (error,), {})(*made.args, *([["x"]] if issubclass(error, DataError) else []))
        )
        == TABLE[error]
    )


def ending(monkeypatch, capsys, raised):
    """(status, stderr) of a command line whose command raises."""

    class Command:
        def main(self, **_):
            if isinstance(raised, BaseException):
                raise raised
            return raised

    monkeypatch.setattr(command_line, "command_line", Command)
    with pytest.raises(SystemExit) as left:
        command_line.main()
    return left.value.code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("raised", "status", "stderr"),
    [
        (None, 0, ""),
        (130, 130, "ccctl: interrupted\n"),
        (FoundProblem(""), 1, ""),
        (FoundProblem("2 wrong"), 1, "ccctl: 2 wrong\n"),
        (DataError("f", ["a: x", "b: y"], hint="h"), 65, "ccctl: f: a: x\nccctl: f: b: y\nhint: h\n"),
        (KeyboardInterrupt(), 130, "ccctl: interrupted\n"),
        (BrokenPipeError(), 0, ""),
        (SystemExit(143), 143, ""),
        (SystemExit(), 0, ""),
        (MemoryError(), 69, "ccctl: there is not enough memory on this machine for that\n"),
    ],
)
def test_each_ending_has_its_status(monkeypatch, capsys, raised, status, stderr):
    assert ending(monkeypatch, capsys, raised) == (status, stderr)


def test_a_bug_is_told_from_a_mistake(monkeypatch, capsys):
    status, stderr = ending(monkeypatch, capsys, ZeroDivisionError("seven"))
    assert status == 70
    assert "ZeroDivisionError: seven" in stderr and "please report" in stderr


def test_the_end_of_a_file_that_nobody_expected_is_no_interruption(monkeypatch, capsys):
    def broken():
        raise EOFError("seven")

    app = command_line.typer.Typer(add_completion=False)
    app.command()(broken)
    monkeypatch.setattr(command_line, "command_line", lambda: command_line.typer.main.get_command(app))
    monkeypatch.setattr(sys, "argv", ["ccctl"])
    with pytest.raises(SystemExit) as left:
        command_line.main()
    assert left.value.code == 70 and "EOFError: seven" in capsys.readouterr().err


def test_where_no_home_is_named_programs_that_are_started_find_the_users():
    script = (
        "import os, sys; sys.argv = ['ccctl', '--version']\n"
        "from ccctl.main import main\n"
        "try: main()\n"
        "finally: print(os.environ['HOME'])"
    )
    without = {name: value for name, value in os.environ.items() if name != "HOME"}
    done = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, env=without)
    assert done.stdout.splitlines()[1:] == [pwd.getpwuid(os.getuid()).pw_dir]


@pytest.mark.parametrize("command", ["schema profile", "--help", "--version"])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_closed_pipe_is_quiet(command, unbuffered):
    line = f"{{ sleep 0.2; {sys.executable} -P -m ccctl {command}; echo $? >&2; }} | true"
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, env=environment)
    assert done.stderr.strip() == "0"


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_behind_stdout_is_said(unbuffered):
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-P", "-m", "ccctl", "schema"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment)
    assert done.returncode == 73
    assert done.stderr == "ccctl: stdout: No space left on device\n"


def test_closed_streams_are_no_error():
    line = f"{sys.executable} -P -m ccctl schema >&- 2>&-"
    assert subprocess.run(["sh", "-c", line]).returncode == 0


def test_no_character_is_fatal(run_ccctl):
    done = run_ccctl("show", "ünknown\u2192.json", PYTHONIOENCODING="ascii", LC_ALL="C")
    assert done.returncode == 66
    assert "there is no such file" in done.stderr


@pytest.mark.parametrize("module", ["ccctl.main", "typer", "ccctl.commands"])
def test_interruption_while_it_starts_is_status_130_without_a_traceback(module):
    script = (
        "import sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}: raise KeyboardInterrupt\n"
        "sys.argv, sys.meta_path[:0] = ['ccctl', '--version'], [Interrupting()]\n"
        "from ccctl.__main__ import main\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "ccctl: interrupted\n")


@pytest.mark.parametrize(
    ("number", "status", "said"), [(signal.SIGINT, 130, "ccctl: interrupted\n"), (signal.SIGTERM, 143, "")]
)
@pytest.mark.parametrize("error", ["ImportError('initialization failed')", "UnavailableError('no solver')"])
def test_a_signal_that_a_library_turns_into_another_error_ends_the_command(number, status, said, error):
    script = (
        "import os, sys\n"
        "from exec.launcher.signals import unwinding\n"
        "from probes.base.errors import UnavailableError\n"
        "class Loading:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'synth.network':\n"
        "            try:\n"
        f"                with unwinding(): os.kill(os.getpid(), {int(number)})\n"
        "            except BaseException: pass\n"
        f"            raise {error}\n"
        "sys.argv, sys.meta_path[:0] = ['ccctl', 'synth', '--network', 'ring:2'], [Loading()]\n"
        "from ccctl.__main__ import main\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (status, said)


def test_interruption_is_status_130_without_a_traceback(tmp_path):
    waiting = subprocess.Popen(
        [sys.executable, "-P", "-m", "ccctl", "show", "-"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    # Reading stdin is the only thing that leaves this command asleep.
    deadline_s = time.monotonic() + 100
    while not asleep(waiting.pid) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    waiting.send_signal(signal.SIGINT)
    _, stderr = waiting.communicate(timeout=HANG_S)
    assert (waiting.returncode, stderr) == (130, "ccctl: interrupted\n")


def asleep(pid):
    return Path(f"/proc/{pid}/syscall").read_text().split()[:2] == ["0", "0x0"]


def test_an_output_that_cannot_be_written_is_refused_before_any_work(run_ccctl, tmp_path):
    done = run_ccctl("detect", "-o", "none/topology.json")
    assert (done.returncode, done.stdout) == (73, "")
    assert done.stderr == "ccctl: none/topology.json: there is no folder none\nhint: mkdir -p none\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["probes", "synth", "exec"])
def test_a_file_that_shadows_a_package_is_named(name, tmp_path):
    (tmp_path / f"{name}.py").write_text("")
    done = subprocess.run(
        [sys.executable, "-m", "ccctl", "--version"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 78
    assert f"expected the package {name!r}" in done.stderr and str(tmp_path / f"{name}.py") in done.stderr
    assert "Traceback" not in done.stderr


def test_no_command_fails_in_silence(monkeypatch, capsys):
    status, said = ending(monkeypatch, capsys, UsageError(""))
    assert status == 2
    assert "gave up without a reason (UsageError)" in said


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e999", "9" * 400])
@pytest.mark.parametrize("option", ["--timeout", "--tolerance"])
def test_a_number_that_is_none_is_a_usage_error(run_in_process, option, value):
    assert run_in_process("bench", "x.json", f"{option}={value}")[0] == 2


@pytest.mark.parametrize(("command", "missing"), [("bench", "x.json"), ("explain", "x.log")])
def test_a_percentage_may_have_its_sign(run_in_process, command, missing):
    # 66: the option was read, and then the file was not there.
    assert run_in_process(command, missing, "--tolerance", "15%")[0] == 66
    assert run_in_process(command, missing, "--tolerance", "15 %")[0] == 66
    assert run_in_process(command, missing, "--tolerance", "-15%")[0] == 2
    assert run_in_process(command, missing, "--tolerance", "%")[0] == 2


def test_words_of_thousands_of_characters_are_not_repeated(run_in_process):
    for words in (["verify", "9" * 5000], ["synth", "--network", "9" * 5000]):
        status, said = run_in_process(*words)
        assert status in (2, 66)
        assert 0 < len(said) < 1500


@pytest.mark.parametrize("limit", ["0", "-1", "-0.0"])
@pytest.mark.parametrize("command", ["bench", "run", "profile", "detect", "synth"])
def test_a_limit_in_time_that_is_none_is_a_usage_error(run_ccctl, command, limit):
    option = "--time-limit" if command == "synth" else "--timeout"
    given = {"bench": ["x.json"], "run": ["x.json", "--input", "x.npy"], "profile": ["-n", 2]}
    done = run_ccctl(command, *given.get(command, []), option, limit)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{option}: expected seconds > 0, found {float(limit):g}" in done.stderr
