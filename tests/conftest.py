"""Fixtures for every test: ccctl as a user runs it, and a small valid artifact of each kind."""

import functools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import ExitStack
from multiprocessing.util import Finalize
from pathlib import Path

import pytest
from certificates import remarks
from drawn_examples import drawn
from hypothesis import settings
from limits import HANG_S
from racked_networks import racked
from symmetric_samples import made
from warm_commands import warm_commands

from exec.benchmark.breakdown import Breakdown, Busy, Forecast, Part, RankTimes
from exec.benchmark.report import Measurement, Report, Row, Spread
from exec.training.workloads.report import TrainedMode, TrainingReport
from probes.base.columns import bytes_of, floats, ints, longs
from probes.files import temporary_folders
from probes.health import ClusterHealth, HostHealth, KernelEvent
from probes.link_costs import Links, Profile, ProfiledRank, SharedPort
from probes.profiling.history import Event, History
from probes.profiling.raw_samples import RawSamples
from probes.topology import Host, Nic, NumaNode, Topology
from synth import synthesize
from synth.collective import collective
from synth.fusion.costs import RingCosts
from synth.fusion.methods import fusion_plan
from synth.fusion.model import Model
from synth.fusion.tuning import begun
from synth.groups.planner import plan_groups
from synth.kernels.stored_loops import cache_folder
from synth.network import Link, build
from synth.networks.families import family
from synth.program import Program
from synth.schedules import Bound, Outcome, Point, Range, Schedule, Selection, UnsizedSchedule

# `make coverage` also has Python itself run the compiled loops, to see their lines: a hundred times slower.
INTERPRETED = os.environ.get("NUMBA_DISABLE_JIT", "0") != "0"
INTERPRETED_S = 1
# Free bytes of /dev/shm from which tests keep their files there; a whole run takes a tenth.
LEAST_MEMORY_BYTES = 4 << 30
# Empty where pytest runs all in one process.
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "")

# Tests assert results: how long an example takes depends on what else the machine does.
# Each run draws other ones, but in CI.
settings.register_profile("untimed", parent=settings.default, deadline=None, max_examples=drawn(50))
settings.load_profile("untimed")

# Tests start thousands of commands and ranks. Without bytecode each compiles all sources anew, which costs it
# three times the processor time; what is kept is what git ignores.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_configure(config):
    stay_in_memory(config)
    # Tests run beside each other, and must not wait for each other's locks.
    os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="ccctl-tests-")
    if WORKER:
        # Ranks of other tests want the cores on which those of MPI poll.
        os.environ.setdefault("OMPI_MCA_mpi_yield_when_idle", "1")
    # Compiled loops stay those of the user; what else is kept goes.
    loops = cache_folder()
    os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="ccctl-tests-")
    if loops is not None:
        loops.mkdir(parents=True, exist_ok=True)
        kept = Path(os.environ["XDG_CACHE_HOME"], "ccctl")
        kept.mkdir()
        (kept / "numba").symlink_to(loops)
    # Commands and ranks run beside each other: a thread of linear algebra for each core would be too many.
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    # It compares the variables of commands with those of now.
    warm_commands().fork_ranks()


def stay_in_memory(config):
    """Keep temporary files in memory where there is room: on some disks each new one takes a millisecond.

    TMPDIR chooses another place; workers have it from the process that started them.
    """
    memory = Path("/dev/shm")
    if "TMPDIR" in os.environ or not os.access(memory, os.W_OK):
        return
    found = os.statvfs(memory)
    # Tests run programs that they write.
    if found.f_flag & os.ST_NOEXEC or found.f_bavail * found.f_frsize < LEAST_MEMORY_BYTES:
        return
    stack = ExitStack()
    # The path of a socket has at most 107 bytes, so these names are short.
    folder = stack.enter_context(temporary_folders.folder("cct-", memory))
    # Some tests are another user for a while.
    folder.chmod(0o1777)
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    config.option.basetemp = config.option.basetemp or str(folder / "p")
    # At exit, multiprocessing removes a folder of its own in it, with priority -100.
    Finalize(None, stack.close, exitpriority=-200)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """Let workers begin with the first file, the last one, or one in the middle.

    So in the first run of a clone each of them rewrites the assertions of other files.
    """
    report = yield
    if isinstance(collector, (pytest.Session, pytest.Dir)) and report.passed and WORKER:
        found, number = report.result, int(WORKER.removeprefix("gw"))
        if number % 3 == 1:
            found.reverse()
        elif number % 3 == 2:
            found[:] = found[len(found) // 2 :] + found[: len(found) // 2]
    return report


def pytest_collection_modifyitems(items):
    """Give all workers the same order."""
    if WORKER:
        items.sort(key=lambda item: item.path)


def pytest_collection_finish(session):
    """Refuse modules of tests that set variables on import: each command would be a new Python."""
    changed = warm_commands().changed(os.environ)
    if changed:
        raise pytest.UsageError(f"modules of tests changed {', '.join(changed)} when they were imported")


def pytest_unconfigure(config):
    warm_commands().close()
    for variable in ("XDG_STATE_HOME", "XDG_CACHE_HOME"):
        shutil.rmtree(os.environ.pop(variable), ignore_errors=True)


def pytest_terminal_summary(terminalreporter):
    """Say in one line which tests were skipped, by reason."""
    skipped = terminalreporter.stats.get("skipped", [])
    if skipped:
        reasons = Counter(_reason(report.longrepr) for report in skipped)
        told = "; ".join(f"{count}: {reason}" for reason, count in reasons.most_common())
        terminalreporter.write_line(f"{len(skipped)} skipped ({told})")


def _reason(skip):
    """Shorten the reason of a skipped test to what the machine lacks."""
    reason = skip[2] if isinstance(skip, tuple) else str(skip)
    reason = reason.removeprefix("Skipped: ").splitlines()[0]
    if found := re.match(r"could not import '([\w.]+)'", reason):
        return f"{found[1]} is not installed"
    return reason.split(": ")[0]


# A shell lets what it starts in the background ignore Ctrl-C, nohup the end of the terminal, and so would
# every command of a test.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_runtest_setup(item):
    if item.get_closest_marker("netns") and (reason := no_namespaces()):
        pytest.skip(reason)
    if INTERPRETED:
        # Seconds of this process's own work, however busy the machine is.
        signal.signal(signal.SIGVTALRM, _give_up)
        signal.setitimer(signal.ITIMER_VIRTUAL, INTERPRETED_S)


def pytest_runtest_teardown():
    if INTERPRETED:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _give_up(number, frame):
    pytest.skip(f"not done in {INTERPRETED_S} s without compiled loops")


@functools.cache
def no_namespaces():
    """Why tests that need network namespaces cannot run here; nothing where they can."""
    if os.geteuid() != 0:
        return "needs root"
    missing = [tool for tool in ("ip", "tc", "unshare") if shutil.which(tool) is None]
    if missing:
        return f"needs {', '.join(missing)}"
    refused = subprocess.run(["unshare", "--net", "--pid", "--fork", "true"], capture_output=True, text=True)
    return refused.stderr.strip()


@pytest.fixture(scope="session")
def _warm_commands():
    return warm_commands()


@pytest.fixture
def run_ccctl(tmp_path, _warm_commands):
    """A function that runs ``ccctl ARGUMENTS`` in an empty folder and gives the finished process.

    Python starts anew only for commands with variables of their own that its imports read.
    """

    def run(*arguments, stdin="", cwd=tmp_path, timeout=HANG_S, **environment):
        words = [*map(str, arguments)]
        variables = {**os.environ, **{name: str(value) for name, value in environment.items()}}
        if _warm_commands.serves(variables):
            return _warm_commands.run(words, stdin, cwd, timeout, variables=variables)
        return subprocess.run(
            [sys.executable, "-P", "-m", "ccctl", *words],
            input=stdin,
            capture_output=True,
            text=True,
            cwd=cwd,
            timeout=timeout,
            env=variables,
        )

    return run


@pytest.fixture(scope="session")
def schedule():
    """A ring all_gather on four ranks."""
    links = [Link(rank, (rank + 1) % 4, 1e-6, 1e-9, (f"nic{rank}",)) for rank in range(4)]
    sends = [((rank - step) % 4, rank) for step in range(3) for rank in range(4)]
    return Schedule(
        network=build("ring:4", ["host"] * 4, links),
        collective=collective("all_gather", 4, 1),
        chunk_bytes=1 << 20,
        method="ring",
        seed=0,
        chunk=ints([chunk for chunk, _ in sends]),
        link=ints([link for _, link in sends]),
        op=bytes_of([0] * len(sends)),
        outcome=Outcome(3.15e-3, (Bound("ingress", 3.1e-3, "rank 0"),)),
    )


@pytest.fixture(scope="session")
def samples(schedule):
    """A right value of each kind of artifact."""
    cost, cost4 = floats([1e-6, 2e-6]), floats([2e-6, 8e-6, 1e-6, 9e-6])
    links = Links(ints([0, 1]), ints([1, 0]), *[cost] * 9, ints([9, 9]), ("", "noisy"))
    ranks = (ProfiledRank(0, "host"), ProfiledRank(1, "host"))
    host = Host("host", "test", 2, numa=(NumaNode(0, "test"),), nics=(Nic("eth0", "test"),))
    measured = Measurement(1e-3, 1.1e-3, 1.2e-3, 0, 16.7, 25.1, 0)
    breakdown = Breakdown(
        placement="out of place",
        iteration=3,
        time_s=1e-3,
        slowest_rank=1,
        forecast=Forecast("a network", "cut", 5e-4, 6e-4, 1e-5, -1e-5, 3e-4, (Part("link", "0 -> 1", 9e-4),)),
        parts=(Part("link", "0 -> 1", 7e-4), Part("late", "rank 0", 2e-4), Part("add", "rank 1", 1e-4)),
        ranks=(
            RankTimes(0, 2e-4, 1e-4, 0.0, 1e-4, 0.0, 1e-5),
            RankTimes(1, 0.0, 8e-4, 0.0, 1e-4, 5e-5, 5e-5),
        ),
        busy=(Busy("port", "nic", 2048, 9e-4), Busy("link", "0 -> 1", 1024, 4.5e-4)),
    )
    row = Row(
        "all_reduce",
        1024,
        256,
        "float",
        "sum",
        -1,
        "ring",
        9e-4,
        measured,
        None,
        {"mpi": measured},
        breakdown,
    )
    algorithm = UnsizedSchedule("ring", 0, schedule.collective, schedule.chunk, schedule.link, schedule.op)
    point = Point(1 << 20, 0, 2e-3, 1e-3, "ingress of rank 0")
    program = Program(
        name="pass on",
        collective=collective("broadcast", 2, 1),
        protocol="Simple",
        scratch_chunks=(0, 0),
        tb_rank=ints([0, 1]),
        tb_send=ints([1, -1]),
        tb_recv=ints([-1, 0]),
        tb_channel=ints([0, 0]),
        tb_start=ints([0, 2, 3]),
        op=bytes_of([1, 3, 2]),
        src_buffer=bytes_of([0, 0, 0]),
        src_slot=ints([0, 0, -1]),
        dst_buffer=bytes_of([0, 1, 1]),
        dst_slot=ints([-1, 0, 0]),
        count=ints([1, 1, 1]),
        wait_tb=ints([-1, -1, -1]),
        wait_step=ints([-1, -1, -1]),
    )
    model = Model(
        name="two layers",
        layers=("first", "last"),
        forward_s=floats([1e-3, 2e-3]),
        backward_s=floats([2e-3, 4e-3]),
        tensors=("first.weight", "first.bias", "last.weight"),
        tensor_layer=ints([0, 0, 1]),
        tensor_bytes=longs([4 << 20, 4 << 10, 1 << 20]),
        origin="made up",
    )
    trained = TrainedMode(
        mode="ddp",
        bucket_bytes=4 << 20,
        time_s=0.1,
        spread=Spread(0.05, 0.1, 0.2, 0.3, 0.01, 4),
        rank_s=(0.1, 0.1),
        wire_bytes=1000.0,
        most_wire_bytes=1500.0,
        losses=floats([2.0, 1.0, 0.5]),
        evaluated=longs([1, 3]),
        evaluated_s=floats([0.2, 0.4]),
        accuracies=floats([0.25, 0.95]),
        accuracy=0.95,
        reached_s=0.4,
        replica_difference=0.0,
        ddp_difference=None,
        note="a note",
    )
    return {
        "training": TrainingReport(
            "mlp", 4, 2000, 2, ("host",), "gloo", 3, 1, 16, 1e-3, 0.9, 7, (trained,), {"torch": "2.13"}
        ),
        "model": model,
        "fusion": fusion_plan(model, RingCosts(4, 1e-5, 1e-9)),
        "tuning": begun(subject="two layers by dear").then(25 << 20, 0.5).then(10 << 20, 0.25),
        "topology": Topology(hosts=(host,)),
        "profile": Profile(ranks, links, (SharedPort("bus", (0, 1), "test"),), "mpi", "test", 1.0, 1),
        "schedule": schedule,
        "periodic": synthesize(
            family("ring:3", [1e-6], [1e9]), "all_reduce", 1 << 16, method="periodic"
        ).schedule,
        "symmetric": made("torus:3x2", "all_reduce"),
        "selection": Selection(schedule.network, (algorithm,), (Range(1, 1 << 20, 0),), (point,)),
        "program": program,
        "report": Report(2, ("host",), "mpi", "Open MPI", 1, 2, (row,)),
        "history": History(
            hosts=("host", "host"),
            src=links.src,
            dst=links.dst,
            at_s=floats([0.0, 60.0]),
            beta_s_per_byte=floats([1e-9, 1e-9, 1e-9, 2e-9]),
            alpha_s=floats([1e-6] * 4),
            bandwidth_since_s=floats([0.0, 60.0]),
            latency_since_s=floats([0.0, 0.0]),
            measured_s=floats([60.0, 60.0]),
            changed_s=60.0,
            searched_s_per_byte=floats([]),
            events=(Event(60.0, "drift", "1 → 0: bandwidth 1 → 0.5 GB/s, 50% of the baseline"),),
        ),
        "groups": plan_groups(racked([4, 4]), 1 << 20).groups,
        "health": ClusterHealth(
            (
                HostHealth(
                    "node1", {"driver": "570.124.06"}, events=(KernelEvent("xid", "3b:00.0", 79, "lost"),)
                ),
                HostHealth("node2", {"driver": "565.57.01"}, unread={"kernel log": "needs root"}),
            ),
            {"node3": "no answer to ssh"},
        ),
        "certificate": remarks(),
        "samples": RawSamples(
            ints([0] * 4),
            ints([0, 1, 1, 2]),
            ints([0, 0, 1, 1]),
            ints([1, 1, 0, 0]),
            ints([0, 8, 0, 8]),
            cost4,
        ),
    }
