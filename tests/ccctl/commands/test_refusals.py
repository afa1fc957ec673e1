"""Impossible requests are refused before anything is measured, synthesized or started."""

import shutil
import sys

import numpy as np
import pytest

from ccctl.artifacts import codec
from ccctl.main import main

SCHEDULE = "schedule.json"
WATCH = ("watch", "--baseline", "profile.json", "--schedule", "pair.json", "--state", "state")
# Command line, exit status, what is said, perhaps in two places.
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
    ("bench -n 2 -d float8_e4m3fn", 2, "Use uint8 to move such data"),
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
    (f"bench {SCHEDULE} -n 20", 2, "-n of nccl-tests is --iters of ccctl bench"),
    (f"bench {SCHEDULE} -r 0", 2, "all_gather has no root"),
    (f"bench {SCHEDULE} --baseline report.json", 2, "it has no row of all_gather"),
    (f"bench {SCHEDULE} -b many", 2, "-b: expected a size"),
    (f"bench {SCHEDULE} -b 1M -e 1K", 2, "-b 1M is larger than -e 1K"),
    (f"bench {SCHEDULE} -d float32,complex", 2, "'complex'"),
    (f"bench {SCHEDULE} --op xor", 2, "'xor'"),
    (f"bench {SCHEDULE} --vs mpi,rccl", 2, "--vs: expected mpi, gloo, nccl, found 'rccl'"),
    (f"bench {SCHEDULE} --wires rdma", 2, "--wires: expected auto, mpi, sockets"),
    (f"bench {SCHEDULE} --wires sockets --vs mpi", 2, "leave out --wires"),
    (f"bench {SCHEDULE} --vs gloo:ring", 2, "gloo has no algorithms"),
    (f"bench {SCHEDULE} -t 8", 2, "nccl-tests: a rank is a process"),
    (f"bench {SCHEDULE} -J x.json", 2, "-o report.json"),
    (f"bench {SCHEDULE} -z 0", 2, "a call returns when it is done"),
    ("bench program.json -r 1", 2, "-r 1: the root of pass on is 0"),
    (f"bench {SCHEDULE} program.json", 2, "only one collective can be compared"),
    (f"bench {SCHEDULE} -p ranks=4", 2, "schedule.json has no parameters"),
    (f"bench {SCHEDULE} --placement up", 2, "--placement: expected out"),
    (f"bench {SCHEDULE} -n 5", 2, "-n asks for 5 ranks"),
    ("bench -n 4 --vs mpo", 2, "expected mpi, gloo, nccl, found 'mpo'"),
    (
        "bench AllReduce -n 4",
        2,
        "AllReduce: the name of a collective, where a file … hint: Write --collective all_reduce -n 4.",
    ),
    ("bench -n 4 --device gpu", 2, "--device: expected cpu, cuda, auto, found 'gpu' … did you mean 'cuda'?"),
    ("bench -n 4 -d flaot32", 2, "--dtype: expected one of … did you mean 'float32'?"),
    ("bench -n 4 --op add", 2, "--op: expected one of … did you mean 'sum'?"),
    (f"bench {SCHEDULE} --vs OpenMPI", 2, "expected mpi, gloo, nccl, found 'openmpi' … did you mean 'mpi'?"),
    (f"bench {SCHEDULE} --sizes 4K:1K", 2, "--sizes 4K:1K: expected FROM:TO that rises"),
    (f"bench {SCHEDULE} -e 512", 2, "-b 1K is larger than -e 512 … 1K is the default."),
    ("bench -n 4 --placement up", 2, "--placement: expected out"),
    ("bench -n 4 --collective allredoce", 2, "all_reduce"),
    ("bench -n 4 --collective broadcast -r 4", 2, "rank"),
    ("bench", 2, "expected an ARTIFACT, or how many ranks to measure and to run on"),
    (f"bench {SCHEDULE} --collective reduce", 2, "--collective: it is for a bench without ARTIFACT"),
    (f"bench {SCHEDULE} --fresh", 2, "--fresh: it is for a bench without ARTIFACT"),
    (f"bench {SCHEDULE} --sizes 1K,many", 2, "--sizes: expected a size"),
    (f"bench {SCHEDULE} --profile profile.json", 2, "profile.json has 2"),
    ("accept -n 1", 2, "expected at least 2"),
    ("accept -n 2 --resume", 2, "name it with -o"),
    ("accept -n 2 --resume -o new", 2, "there is no acceptance"),
    ("accept -n 2 --spec dgx-z999", 2, "dgx"),
    ("accept -n 2 --budget soon", 2, "--budget: expected a duration"),
    ("accept -n 2 --plan missing.toml", 66, "missing.toml"),
    ("accept -n 2 --evidence notes.txt", 65, "notes.txt"),
    ("accept -n 2 --since notes.txt", 65, "notes.txt"),
    ("accept -n 2 -o notes.txt", 73, "notes.txt"),
    ("profile -n 1", 2, "expected at least 2"),
    ("profile", 2, "ccctl: "),
    ("profile -n 0", 2, "ccctl: "),
    ("profile -n 8 --hosts a[1-2]", 2, "ccctl: "),
    ("profile -n 2 --pairs pairs.txt", 65, "line 2: there is no rank or host '5'"),
    ("profile -n 2 --pairs none.txt", 66, "none.txt: there is no such file"),
    ("profile -n 2 --pairs notes.txt", 65, "notes.txt: line 1: expected SRC DST"),
    ("profile -n 2 --sizes 4M:1M", 2, "--sizes: expected FROM:TO with FROM ≤ TO"),
    ("profile -n 2 --sizes big", 2, "--sizes: expected a size"),
    ("profile -n 2 --from notes.txt", 2, "--from notes.txt measures nothing"),
    ("profile -n 2 --prometheus links.txt", 2, "expected a file ending in .prom"),
    ("profile -n 2 --prometheus no/links.prom", 73, "there is no folder no"),
    ("profile -n 2 --baseline notes.txt", 65, "notes.txt: "),
    ("profile -n 2 -o none/p.json", 73, "there is no folder none"),
    (f"run {SCHEDULE} --input x.npy -o none/y.npy", 73, "there is no folder none"),
    (f"run {SCHEDULE} --input x.npy --op xor", 2, "'xor'"),
    (f"run {SCHEDULE} --input one.npy", 2, "one.npy: expected 4 rows"),
    (f"run {SCHEDULE} --input no{{rank}}.npy", 66, "no0.npy: there is no"),
    (f"run {SCHEDULE} --input complex.npy", 2, "complex.npy: rank 0: dtype: expected one of"),
    (f"run {SCHEDULE} --input {SCHEDULE}", 65, f"{SCHEDULE}: expected a .npy file"),
    (f"run {SCHEDULE} --input x.npy -p ranks=4", 2, f"{SCHEDULE} has no parameters"),
    (f"run {SCHEDULE} --input x.npy -n 3", 2, "-n asks for 3 ranks"),
    ("run no.json --input x.npy", 66, "no.json"),
    ("run --spare b plan.json", 2, "--spare goes with --adaptive"),
    ("run --adaptive -n 3 --collective scatter", 2, "--adaptive runs one of"),
    ("run --adaptive -n 3 --collective broadcast:0-1", 2, "--adaptive runs one of"),
    ("run --adaptive -n 2 --collective sendrecv", 2, "all_to_next is nearest"),
    ("tune -n 2 -o none/rules", 73, "there is no folder none"),
    ("tune -n 2 --collective sendrecv", 2, "all_to_next is nearest"),
    ("training compare -n 2 --svg none/t.svg", 73, "there is no folder none"),
    (f"{' '.join(WATCH)} --prometheus none/w.prom", 73, "there is no folder none"),
    (f"{' '.join(WATCH)} -n 3", 2, "has 2 ranks, the options name 3"),
]
# Each is an option of its own in nccl-tests or rccl-tests, and none here.
LETTERS = "tgszyGCRSxDVHMYuOFEZJXATkl"


@pytest.fixture(scope="module")
def written(tmp_path_factory, samples, schedule):
    """A folder with what the command lines read."""
    from synth import synthesize
    from synth.networks.measured import from_profile

    folder = tmp_path_factory.mktemp("refusals")
    for name in ("profile", "program", "report"):
        codec.write(str(folder / f"{name}.json"), name, samples[name])
    codec.write(str(folder / SCHEDULE), "schedule", schedule)
    pair = synthesize(from_profile(samples["profile"]), "all_reduce", 1 << 16, method="ring").schedule
    codec.write(str(folder / "pair.json"), "schedule", pair)
    (folder / "pairs.txt").write_text("0 1\n5 0\n")
    (folder / "notes.txt").write_text("buy milk today\n")
    np.save(folder / "x.npy", np.zeros((4, 10), np.float32))
    np.save(folder / "one.npy", np.zeros(3, np.int64))
    np.save(folder / "complex.npy", np.zeros((4, 10), np.complex64))
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
    assert (code, all(part in told for part in said.split(" … "))) == (status, True), told
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
