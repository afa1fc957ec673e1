"""Impossible requests are refused before anything is measured, synthesized or started."""

import shutil
import sys

import pytest

from ccctl.artifacts import codec
from ccctl.main import main

SCHEDULE = "schedule.json"
WATCH = ("watch", "--baseline", "profile.json", "--schedule", "pair.json", "--state", "state")
# Command line, exit status, what is said.
REFUSED = [
    # As nccl-tests has it.
    ("bench -n 2 -o sum", 2, "Write --op sum"),
    ("bench -n 2 -o all", 2, "Write --op all; -o ./all writes a file of that name."),
    ("bench -n 2 -o MIN", 2, "Write --op min"),
    ("bench -n 2 -p 1", 2, "-p 1: a parameter of an algorithm in a file"),
    ("bench -n 2 -N 0", 2, "0 is less than 1"),
    ("bench -n 2 -r all --collective broadcast", 2, "'all' is not a whole number"),
    ("bench -n 2 --collective sendrecv", 2, "all_to_next is nearest"),
    ("bench -n 2 --collective SendRecv_perf", 2, "all_to_next is nearest"),
    ("bench -n 2 --collective hypercube", 2, "write all_gather"),
    ("bench -n 2 -d fp8e4m3", 2, "no executor adds floating-point numbers of 8 bits"),
    ("bench -n 2 -d float,f8e5m2", 2, "'f8e5m2'"),
    ("bench -n 2 -d float8_e4m3fn", 2, "uint8 moves as many bytes"),
    ("bench -n 2 -d fp8", 2, "8 bits"),
    # A name longer than a file system takes.
    (f"explain {'x' * 400}", 66, "File name too long"),
    (f"compile {SCHEDULE} -o {'x' * 400}", 73, "File name too long"),
    # Requests that the ranks, or the end of the run, would refuse.
    ("bench -n 2 -r 0", 2, "-r 0: all_reduce has no root"),
    ("bench -n 2 --collective all_to_all --placement in", 2, "all_to_all cannot run in place"),
    ("bench -n 2 --collective broadcast -r 7", 2, "-r 7: there is no such rank among 2"),
    ("bench -n 2 -e 4T", 69, "all_reduce of 4398046511104 bytes takes"),
    ("bench -n 2 --collective all_gather -e 4T -d double", 69, "all_gather of 4398046511104 bytes takes"),
    ("bench -n 2 --baseline report.json", 2, "report.json: it has no row of all_reduce"),
    (
        "bench -n 2 --collective broadcast -d half --baseline report.json",
        2,
        "it has no row of broadcast, half",
    ),
    ("bench -n 1", 2, "a collective needs two ranks at least"),
    ("bench -n 2 -o none/report.json", 73, "there is no folder none"),
    ("bench -n 2 --vs mpi,foo", 2, "found 'foo'"),
    (f"bench {SCHEDULE} -e 4T", 69, "all_gather of 4398046511104 bytes takes"),
    (f"bench {SCHEDULE} -o sum", 2, "Write --op sum"),
    (f"bench {SCHEDULE} -n 20", 2, "-n is --iters here"),
    (f"bench {SCHEDULE} -r 0", 2, "all_gather has no root"),
    (f"bench {SCHEDULE} --baseline report.json", 2, "it has no row of all_gather"),
    ("profile -n 1", 2, "expected at least 2"),
    ("profile -n 2 --pairs pairs.txt", 65, "line 2: there is no rank or host '5'"),
    ("profile -n 2 -o none/p.json", 73, "there is no folder none"),
    (f"run {SCHEDULE} --input x.npy -o none/y.npy", 73, "there is no folder none"),
    (f"run {SCHEDULE} --input x.npy --op xor", 2, "'xor'"),
    ("run --adaptive -n 2 --collective sendrecv", 2, "all_to_next is nearest"),
    ("tune -n 2 -o none/rules", 73, "there is no folder none"),
    ("tune -n 2 --collective sendrecv", 2, "all_to_next is nearest"),
    ("training compare -n 2 --svg none/t.svg", 73, "there is no folder none"),
    (f"{' '.join(WATCH)} --prometheus none/w.prom", 73, "there is no folder none"),
    (f"{' '.join(WATCH)} -n 3", 2, "has 2 ranks, the options name 3"),
]
# Each is an option of its own in nccl-tests or rccl-tests, and none here.
LETTERS = [
    "t",
    "g",
    "s",
    "z",
    "y",
    "G",
    "C",
    "R",
    "S",
    "x",
    "D",
    "V",
    "H",
    "M",
    "Y",
    "u",
    "O",
    "F",
    "E",
    "Z",
    "J",
    "X",
    "A",
    "T",
    "k",
    "l",
]


@pytest.fixture(scope="module")
def written(tmp_path_factory, samples, schedule):
    """A folder with what the command lines read."""
    from synth import synthesize
    from synth.networks.measured import from_profile

    folder = tmp_path_factory.mktemp("refusals")
    for name in ("profile", "report"):
        codec.write(str(folder / f"{name}.json"), name, samples[name])
    codec.write(str(folder / SCHEDULE), "schedule", schedule)
    pair = synthesize(from_profile(samples["profile"]), "all_reduce", 1 << 16, method="ring").schedule
    codec.write(str(folder / "pair.json"), "schedule", pair)
    (folder / "pairs.txt").write_text("0 1\n5 0\n")
    return folder


@pytest.fixture
def command(monkeypatch, tmp_path, written, capsys):
    """(status, stderr) of a command line, in which nothing may be measured, synthesized or started."""
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)

    def never(*arguments, **how):
        raise AssertionError("ranks were started, or a schedule was searched for")

    monkeypatch.setattr("exec.launcher.run.run_ranks", never)
    monkeypatch.setattr("ccctl.prepared.contestant._synthesize_sizes", never)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["ccctl", *words])
        with pytest.raises(SystemExit) as left:
            main()
        told = capsys.readouterr()
        assert told.out == ""
        return left.value.code, told.err

    return run


@pytest.mark.parametrize(("line", "status", "said"), REFUSED)
def test_what_cannot_be_is_refused_before_anything_is_started(command, line, status, said):
    code, told = command(*line.split())
    assert (code, said in told) == (status, True), told
    assert told.count("\nccctl: ") == 0 and told.startswith("ccctl: ")


@pytest.mark.parametrize("letter", LETTERS)
@pytest.mark.parametrize("form", ["-{} 1", "-{}1", "-{}"])
def test_an_option_of_nccl_tests_is_answered_alone_with_what_to_type(command, letter, form):
    code, told = command("bench", "-n", "2", *form.format(letter).split())
    first, *rest = told.splitlines()
    assert code == 2
    assert first.startswith(f"ccctl: -{letter} is an option of nccl-tests: ")
    assert rest == ["hint: see ccctl bench --help"]


@pytest.mark.parametrize(
    ("word", "instead"),
    [("--ngpus", "-n RANKS"), ("--minbytes=8", "write -b SIZE"), ("--warmup_iters", "write -w N")],
)
def test_so_is_its_long_name(command, word, instead):
    code, told = command("bench", "-n", "2", word)
    assert (code, instead in told) == (2, True)


def test_more_ranks_than_cores_beside_options_of_nccl_tests_are_said_to_be_ranks(monkeypatch, command):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1})
    for line, said in (
        ("bench -b 8 -e 4T -n 20", True),
        ("bench -w 5 -e 4T -n 3", True),
        ("bench -e 4T -n 2", False),
        ("bench --sizes 4T -n 20", False),
    ):
        code, told = command(*line.split())
        assert code == 69
        assert ("what nccl-tests calls -n is --iters" in told) == said
