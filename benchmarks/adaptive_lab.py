"""Adaptive sessions in a lab (needs root): the gains and costs of adaptation, relays and recovery.

volatile: all_reduces on hosts whose rates follow a trace from a public cloud (AdapCC's, amplified by x as in
its Fig. 18a), with adaptation, without it, and by Open MPI. Ratios are of makespans.

interference: the same on hosts of equal rates, while flows of other tenants come and go between random pairs
of hosts.

cores: ranks compute on cores that they share with 0, 2 or 4 other processes, which move from core to core
(its Fig. 18b). Times are from when the first rank is ready until all are done; the ratio is of waiting for
all over relays.

stragglers: some ranks come late at random (one or two values, or exponentially). Times are from when the last
rank is ready until all are done; the ratio is of relays over waiting. Also how often each rank relays (Fig.
15).

kills: a rank is killed (SIGKILL) or stopped (SIGSTOP, then SIGCONT), or its host is cut off, at a random
moment. Do the survivors go on with exact results, and how soon? With --login the job is started on a fifth
host without ranks, so the host of rank 0 may be cut off and rank 1 takes over. Without --login, --victim 0
also cuts off the host where the job was started: rank 0 is alone there, and the job ends with LostRankError.

rounds: all_reduces of random sizes, types and operators on 2 to 6 ranks of this host. In each of them random
ranks come late, so the ranks whose data goes first are random, too. Every element must be exact.

rpc: the round trip between workers and the coordinator, 8 ranks on this host at once (Fig. 19d).

    python -P benchmarks/adaptive_lab.py volatile [--amplify 0.6] [--iterations 300] [--hold 15]
    python -P benchmarks/adaptive_lab.py interference [--flows 2] [--iterations 300] [--hold 60]
    python -P benchmarks/adaptive_lab.py cores [--iterations 60] [--hold 3]
    python -P benchmarks/adaptive_lab.py stragglers | kills [--trials 20] [--kind stop] [--here]
    python -P benchmarks/adaptive_lab.py kills --kind host [--login] [--victim 0]
    python -P benchmarks/adaptive_lab.py rounds [--trials 1000] [--seed 0]
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import math
import os
import pickle
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from exec.adaptive.coordinator import WaitPolicy
from exec.adaptive.iterations import Iterations, IterationsReport, iterations_task
from exec.lab import lifecycle
from exec.lab.iproute import ip
from exec.lab.model import Lab, LabHost
from exec.lab.run import files, started
from exec.program.dtypes import Array, ufunc_of
from probes.base.progress import Safekeeping

MBIT = 125_000


def lab_of(name: str, hosts: int, mbit: float) -> Lab:
    """Return hosts on one switch, each with the same rate both ways."""
    return Lab(name, tuple(LabHost(f"h{at}", 1, mbit * MBIT, mbit * MBIT) for at in range(hosts)))


@contextlib.contextmanager
def standing(lab: Lab) -> Iterator[Path]:
    """Yield the lab, up, and a folder with what its commands need."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files(lab).items():
            (Path(folder) / name).write_text(content)
            (Path(folder) / name).chmod(0o755)
        # Remove what a killed run left behind.
        lifecycle.down(lab.name)
        lifecycle.up(lab)
        try:
            yield Path(folder)
        finally:
            lifecycle.down(lab.name)


def run_inside(
    lab: Lab | None,
    folder: Path,
    asked: Iterations,
    how: str,
    during: Callable[[threading.Event], None],
    hosts: str | None = None,
) -> Any:
    """Run the job and return its result, or the exception as text.

    ``during`` runs beside the job until its event is set. Without a lab the job runs on this host. With
    ``hosts`` it runs on these, and is started on the last host.
    """
    (folder / "asked").write_bytes(pickle.dumps((how, asked, hosts)))
    (folder / "found").unlink(missing_ok=True)
    (folder / "started").unlink(missing_ok=True)
    command = [sys.executable, "-P", str(Path(__file__).resolve()), "inside", str(folder)]
    over = threading.Event()
    beside = threading.Thread(target=during, args=(over,), daemon=True)
    first = lab.hosts[-1 if hosts else 0].name if lab else ""
    inner = started(lab, first, command, folder) if lab else subprocess.Popen(command)
    with inner as process:
        beside.start()
        try:
            process.wait(1200)
        except subprocess.TimeoutExpired:
            return "no end within 1200 s"
        finally:
            over.set()
            beside.join()
    return pickle.loads((folder / "found").read_bytes()) if (folder / "found").exists() else "ended"


def inside(folder: Path) -> None:
    """Launch the job in a host of the lab, and write its result to a file."""
    from exec import launch

    how, asked, hosts = pickle.loads((folder / "asked").read_bytes())
    hosts = hosts or os.environ.get("CCCTL_HOSTS")
    try:
        if how == "mpi":
            given = asked, str(folder / "started")
            found: Any = launch("adaptive_lab:mpi_task", given, hosts=hosts, timeout_s=1000)
        else:
            found = launch(
                "adaptive_lab:session_task",
                (asked, str(folder / "started")),
                ranks=None if hosts else 4,
                hosts=hosts,
                wires="sockets",
                survive=True,
                timeout_s=1000,
            )
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
    (folder / "found").write_bytes(pickle.dumps(found))


class _Started:
    """Progress that writes a file at the first request."""

    def __init__(self, progress: Safekeeping, file: str) -> None:
        self._progress, self._file = progress, Path(file)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._progress, name)

    def update(self, done: int, total: int, detail: str = "") -> None:
        if not done:
            self._file.touch()
        self._progress.update(done, total, detail)


def session_task(comm: Any, given: tuple[Iterations, str], progress: Safekeeping) -> IterationsReport | None:
    """Run the job in a session; return its report."""
    asked, file = given
    if asked.busy:
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[comm.Get_rank() % len(cores)]})
    started: Any = _Started(progress, file)
    return iterations_task(comm, asked, started)


def mpi_task(comm: Any, given: tuple[Iterations, str], progress: Safekeeping) -> float:
    """Run the same job by the MPI library; return its makespan in seconds."""
    asked, file = given
    started = _Started(progress, file)
    send, recv = np.ones(asked.count, asked.dtype), np.zeros(asked.count, asked.dtype)
    comm.Barrier()
    started_s = time.monotonic()
    for seq in range(asked.iterations):
        started.update(seq, asked.iterations)
        comm.Allreduce(send, recv)
    return time.monotonic() - started_s


def rpc_task(comm: Any, rounds: int, progress: Safekeeping) -> list[float] | None:
    """Ask rank 0 ``rounds`` times from every other rank; return all round trips in seconds on rank 0."""
    from exec.adaptive.messages import CollectiveCall, Ready

    asked = Ready(0, CollectiveCall("all_reduce", "sum", "float32", 1, 4))
    comm.mesh.subscribe("asked", lambda rank, message: comm.mesh.send(rank, "answered", message))
    comm.Barrier()
    took_s = []
    for _ in range(rounds if comm.Get_rank() else 0):
        started_s = time.perf_counter()
        comm.mesh.send(0, "asked", asked)
        comm.mesh.receive(0, "answered")
        took_s.append(time.perf_counter() - started_s)
        time.sleep(0.005)
    every = comm.gather(took_s)
    return [one for each in every for one in each] if every else None


OPERATORS = ("sum", "min", "max", "prod")
TYPES = ("float32", "float64", "int32", "int64")
SIZES = (1, 7, 501, 4096, 20_011, 100_003)
SHAPES, SESSIONS = 3, 5


def rounds_task(comm: Any, asked: tuple[int, int], progress: Safekeeping) -> tuple[int, ...] | None:
    """Run random requests, each of a shape that was set up, on ranks that are late at random.

    Returns numbers: wrong elements on all ranks, requests that went on without a late rank, different sets of
    first ranks, joins by chunks of late ranks, and bytes of these chunks.
    """
    from exec.adaptive.session import Session

    (rounds, seed), rank, size = asked, comm.Get_rank(), comm.Get_size()
    chance = random.Random(seed)
    shapes = [(chance.choice(SIZES), chance.choice(TYPES), chance.choice(OPERATORS)) for _ in range(SHAPES)]
    session = Session(comm, replan_s=1.0)
    for shape in shapes:
        session.setup(*shape)
    wrong = 0
    for seq in range(rounds):
        progress.update(seq, rounds, "rounds")
        count, dtype, op = chance.choice(shapes)
        late_s = [chance.choice((0.0, 0.0, 0.004, 0.02)) * chance.random() for _ in range(size)]
        every = [_drawn((seed, seq, of), count, dtype, op) for of in range(size)]
        time.sleep(late_s[rank])
        found = session.all_reduce(every[rank], op).wait(300)
        wrong += int(np.count_nonzero(found != reduce(ufunc_of(op), every)))
    wrong = sum(comm.named("wrong").allgather(wrong))
    joined = [size for each in comm.named("joined late").allgather(session.joined_late) for _, size in each]
    report = None
    if rank == session.coordinator:
        parts = [one.parts for one in session.seen]
        without = sum(len(one) > 1 for one in parts)
        report = wrong, without, len({one[0] for one in parts}), len(joined), sum(joined)
    session.close()
    return report


def _drawn(seed: tuple[int, ...], count: int, dtype: str, op: str) -> Array:
    """Return whole numbers whose sums are exact, or powers of two whose products are exact."""
    numbers = np.random.default_rng(seed).integers(-1000, 1000, count)
    return (2 ** (numbers % 3) if op == "prod" else numbers).astype(dtype)


def rounds(options: argparse.Namespace) -> None:
    """Print the findings of each session, and their sum."""
    from exec import launch

    sys.path.insert(0, str(Path(__file__).parent))
    wrong = relayed = done = 0
    for session in range(SESSIONS):
        count = (session + 1) * options.trials // SESSIONS - done
        seed, ranks = options.seed + session, 2 + session
        bad, without, sets, joins, joined_bytes = launch(
            "adaptive_lab:rounds_task",
            (count, seed),
            ranks=ranks,
            wires="sockets",
            survive=True,
            timeout_s=600,
        )
        print(
            f"{ranks} ranks: {count} rounds, {without} without a late rank at first, "
            f"{sets} sets of first ranks, late chunks joined {joins} times, {joined_bytes >> 10} KiB, "
            f"{bad} wrong elements",
            flush=True,
        )
        done, wrong, relayed = done + count, wrong + bad, relayed + without
    print(f"{done} rounds, {relayed} without a late rank at first, {wrong} wrong elements")


def rpc(options: argparse.Namespace) -> None:
    """Print percentiles of the round trip."""
    from exec import launch

    took_s = sorted(launch("adaptive_lab:rpc_task", options.iterations, ranks=8, wires="sockets"))
    share = {percent: took_s[int(percent / 100 * (len(took_s) - 1))] * 1e3 for percent in (50, 90, 99)}
    print(", ".join(f"{percent} % within {value:.2f} ms" for percent, value in share.items()))


def makespan_s(report: IterationsReport) -> float:
    """Return the seconds from the first request to the last result."""
    first = min(float(one.ready_s[0]) for one in report.times)
    return max(float(one.done_s[-1]) for one in report.times) - first


def volatile(options: argparse.Namespace) -> None:
    """Print the makespans and their ratios."""
    from volatile_trace import forecasts, makespan_s as simulated_s, network_of, rates

    from exec.adaptive.messages import CollectiveCall
    from exec.adaptive.replanner import good_schedules

    lab = lab_of("volatile", 4, options.mbit)
    hosts, count = len(lab.hosts), options.bytes // 4
    even = network_of([options.mbit] * hosts)
    # The hosts of the lab share few cores: a busy one may be silent for long.
    asked = Iterations(options.iterations, count, network=even, policy=WaitPolicy(silent_s=20.0))
    rows = {
        x: list(itertools.islice(rates(x, hosts, options.mbit), options.moments)) for x in options.amplify
    }
    print(
        f"4 hosts at {options.mbit:g} Mbit/s, {options.iterations} all_reduces of {options.bytes:,} bytes, "
        f"rates change every {options.hold:g} s, links measured every {options.every} and on drift"
    )
    with standing(lab) as folder:
        _restarted(lab, folder, asked, options.restarts)
        came = {
            amplify: _makespans(lab, folder, asked, _Follow(lab, folder, moments, options.hold), options)
            for amplify, moments in rows.items()
        }
    # Once the lab is down: it takes the cores.
    request = CollectiveCall("all_reduce", "sum", "float32", count, 4)
    static = good_schedules(even, [request], range(hosts), asked.replan_s)[request]
    for amplify, found in came.items():
        longest_s = max((makespan_s(one) for how, one in found.items() if how != "mpi"), default=0.0)
        seen = forecasts(static, rows[amplify][: int(longest_s // options.hold) + 1])
        _moments(seen, found, options.hold)
        bound = [
            simulated_s([getattr(one, which) for one in seen], options.iterations, options.hold)
            for which in ("static_s", "best_s")
        ]
        ratio = f"{bound[0] / bound[1]:.2f} ({bound[0]:.1f} s, {bound[1]:.1f} s)"
        print(f"x={amplify}: static / clairvoyant by simulation {ratio}", flush=True)


def interference(options: argparse.Namespace) -> None:
    """Print the makespans and their ratios."""
    from volatile_trace import network_of

    lab = lab_of("tenants", 4, options.mbit)
    even = network_of([options.mbit] * len(lab.hosts))
    asked = Iterations(options.iterations, options.bytes // 4, network=even, policy=WaitPolicy(silent_s=20.0))
    print(
        f"4 hosts at {options.mbit:g} Mbit/s, {options.iterations} all_reduces of {options.bytes:,} bytes, "
        f"{options.flows} flows of others, between other pairs every {options.hold:g} s"
    )
    with standing(lab) as folder:
        _makespans(lab, folder, asked, _Tenants(lab, folder, options), options)


LEVELS = (0, 2, 4)


def cores(options: argparse.Namespace) -> None:
    """Print the times of both ways at each level."""
    lab = lab_of("cores", 4, options.mbit)
    computing_s = np.full((options.iterations, 4), 0.02)
    asked = Iterations(options.iterations, options.bytes // 4, computing_s=computing_s, busy=True)
    with standing(lab) as folder:
        for level in LEVELS:
            took_s, wrong = [], 0
            for relays in (False, True):
                given = replace(asked, policy=WaitPolicy(relays=relays))
                came = run_inside(lab, folder, given, "session", _Processes(level, options.hold))
                if isinstance(came, str):
                    sys.exit(came)
                took_s.append(float(np.mean(_between_s(came, np.min))))
                wrong += came.wrong
            print(
                f"{level} processes on a core: {took_s[0] * 1e3:.0f} ms waiting, {took_s[1] * 1e3:.0f} ms "
                f"with relays: {took_s[0] / took_s[1]:.2f}x; wrong {wrong}",
                flush=True,
            )


class _Processes:
    """Processes that are always busy, on one core after the other, each core for ``hold_s``."""

    def __init__(self, count: int, hold_s: float) -> None:
        self.count, self.hold_s = count, hold_s

    def __call__(self, over: threading.Event) -> None:
        # These end with this benchmark, even if it is killed.
        command = ["setpriv", "--pdeathsig", "KILL", sys.executable, "-c", "while True: pass"]
        busy = [subprocess.Popen(command) for _ in range(self.count)]
        try:
            for core in itertools.cycle(sorted(os.sched_getaffinity(0))):
                for one in busy:
                    psutil.Process(one.pid).cpu_affinity([core])
                if over.wait(self.hold_s):
                    break
        finally:
            for one in busy:
                one.kill()
                one.wait()


def _makespans(
    lab: Lab,
    folder: Path,
    asked: Iterations,
    follow: Callable[[threading.Event], None],
    options: argparse.Namespace,
) -> dict[str, Any]:
    """Run the job each way beside ``follow`` and print its makespan; return the results."""
    found = dict[str, Any]()
    for how in options.how or ("static", "adaptive", "mpi"):
        given = replace(asked, profile_every=options.every if how == "adaptive" else 0)
        came = run_inside(lab, folder, given, "mpi" if how == "mpi" else "session", follow)
        if isinstance(came, str):
            print(f"{how}: {came}", flush=True)
            continue
        found[how] = came
        print(f"{how} {came if how == 'mpi' else makespan_s(came):.1f} s", flush=True)
        if how == "adaptive":
            _events(came)
    took_s = {how: one if how == "mpi" else makespan_s(one) for how, one in found.items()}
    if "adaptive" in took_s:
        others = [how for how in took_s if how != "adaptive"]
        print(", ".join(f"{how} / adaptive {took_s[how] / took_s['adaptive']:.2f}" for how in others))
    return found


class _Tenants:
    """Flows at TCP's full rate between random pairs of hosts; the pairs change every ``hold_s``."""

    # A shell would name a process that a signal ends.
    _RECEIVER = """
import signal, socket, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
listener = socket.create_server(("", 5999))
connection, _ = listener.accept()
while connection.recv(1 << 20):
    pass
"""
    _SENDER = """
import signal, socket, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
while True:
    try:
        connection = socket.create_connection((sys.argv[1], 5999))
    except ConnectionRefusedError:
        time.sleep(0.02)
    else:
        break
while True:
    connection.sendall(bytes(1 << 20))
"""

    def __init__(self, lab: Lab, folder: Path, options: argparse.Namespace) -> None:
        self.lab, self.folder, self.hold_s = lab, folder, options.hold
        self.flows, self.seed = options.flows, options.seed

    def __call__(self, over: threading.Event) -> None:
        while not (self.folder / "started").exists():
            if over.wait(0.02):
                return
        # The same pairs for each way of running.
        chance = random.Random(self.seed)
        ends = [host.name for host in self.lab.hosts]
        while not over.is_set():
            with contextlib.ExitStack() as flows:
                # A host receives one of them at most: they share a port.
                for there in chance.sample(ends, self.flows):
                    here = chance.choice([name for name in ends if name != there])
                    for host, script in ((there, self._RECEIVER), (here, self._SENDER)):
                        command = [sys.executable, "-c", script, there]
                        flows.enter_context(started(self.lab, host, command, self.folder))
                over.wait(self.hold_s)


class _Follow:
    """Changes of the lab's hosts to the rates of one moment after the other, from the first request on."""

    def __init__(self, lab: Lab, folder: Path, rates: Sequence[Sequence[float]], hold_s: float) -> None:
        self.lab, self.folder, self.rates, self.hold_s = lab, folder, rates, hold_s

    def __call__(self, over: threading.Event) -> None:
        while not (self.folder / "started").exists():
            if over.wait(0.02):
                return
        now, begun_s = self.lab, time.monotonic()
        for at, mbit in enumerate(self.rates):
            after = replace(
                self.lab,
                hosts=tuple(
                    replace(host, egress_bytes_per_s=rate * MBIT, ingress_bytes_per_s=rate * MBIT)
                    for host, rate in zip(self.lab.hosts, mbit, strict=True)
                ),
            )
            lifecycle.shape(now, after)
            now = after
            if over.wait(max(0.0, begun_s + (at + 1) * self.hold_s - time.monotonic())):
                break
        over.wait()
        lifecycle.shape(now, self.lab)


def _restarted(lab: Lab, folder: Path, asked: Iterations, times: int) -> None:
    """Print the time from a new start of the job to its end after one iteration."""
    took_s = []
    for _ in range(times):
        started_s = time.monotonic()
        came = run_inside(lab, folder, replace(asked, iterations=1, network=None), "session", _nothing)
        took_s.append(time.monotonic() - started_s)
        if isinstance(came, str):
            print(f"one iteration: {came}")
            return
    if took_s:
        print(f"ending the job and starting it anew: {statistics.median(took_s):.2f} s", flush=True)


def _nothing(over: threading.Event) -> None:
    """Do nothing beside the job."""


def _moments(seen: Sequence[Any], found: dict[str, Any], hold_s: float) -> None:
    """Print for each moment: rates, predictions, median time of the iterations that began in it."""
    kinds = [how for how in found if how != "mpi"]
    print("  Mbit/s of the hosts: predicted ms of static, best; measured ms of " + ", ".join(kinds))
    for at, moment in enumerate(seen):
        told = []
        for how in kinds:
            one = found[how].times[0]
            took_s = (one.done_s - one.ready_s)[(one.ready_s - one.ready_s[0]) // hold_s == at]
            told.append(f"{np.median(took_s) * 1e3:5.0f}" if took_s.size else "    -")
        if any(one.strip() != "-" for one in told):
            rates = " ".join(f"{rate:4.0f}" for rate in moment.rates)
            print(f"  {rates}: {moment.static_s * 1e3:5.0f} {moment.best_s * 1e3:5.0f}; {' '.join(told)}")


def _events(report: IterationsReport) -> None:
    """Print how long each phase of a reconstruction took, and how long the job stood still (Fig. 19c)."""
    stood_s, whole_s = 0.0, 0.0
    for what in ("measured", "planned", "built", "swapped"):
        events = [event for event in report.events if event.what == what and not event.detail.get("late")]
        if events:
            took = statistics.median(event.seconds for event in events)
            stood = statistics.median(event.stood_s for event in events)
            stood_s, whole_s = stood_s + stood, whole_s + took
            print(f"  {what}: {len(events)} times, median {took:.3f} s, the job stood {stood:.4f} s")
    all_s = sum(event.stood_s for event in report.events)
    drifts = sum(event.what == "drift" for event in report.events)
    print(f"  a reconstruction: {whole_s:.3f} s, the job stood {stood_s:.4f} s; {all_s:.2f} s in all")
    print(f"  {drifts} times on drift")
    for event in report.events:
        if event.what not in ("measured", "built"):
            print(
                f"    {event.at_s - report.setup_s:6.1f} s {event.what} {event.seconds:.2f} s {event.detail}"
            )


def stragglers(options: argparse.Namespace) -> None:
    """Print the times after the last rank is ready."""
    ratios, ratios_ahead, bounds = [], [], []
    for hosts, late in ((4, 1), (6, 2)):
        lab = lab_of("stragglers", hosts, options.mbit)
        with standing(lab) as folder:
            for kind in ("bimodal", "exponential"):
                chance = np.random.default_rng([options.seed, hosts, len(kind)])
                computing_s = np.full((options.iterations, hosts), 0.02)
                rows = chance.permuted(np.tile(np.arange(hosts), (options.iterations, 1)), axis=1)[:, :late]
                size = rows.shape
                delay_s = (
                    np.where(chance.random(size) < 0.7, options.late, 0.0)
                    if kind == "bimodal"
                    else chance.exponential(options.late, size)
                )
                np.put_along_axis(computing_s, rows, 0.02 + delay_s, axis=1)
                asked = Iterations(options.iterations, options.bytes // 4, computing_s=computing_s)
                found = {}
                for relays in (False, True):
                    given = replace(asked, policy=WaitPolicy(relays=relays))
                    came = run_inside(lab, folder, given, "session", lambda over: None)
                    if isinstance(came, str):
                        print(came)
                        continue
                    found[relays] = came
                if len(found) < 2:
                    continue
                waited_s, relayed_s = (_between_s(found[relays], np.max) for relays in (False, True))
                waited, relayed = np.mean(waited_s), np.mean(relayed_s)
                ratios.append(float(relayed / waited))
                print(
                    f"{late} of {hosts} late, {kind}: after the last is ready {waited * 1e3:.0f} ms waiting, "
                    f"{relayed * 1e3:.0f} ms with relays: {relayed / waited:.2f}; wrong "
                    f"{found[True].wrong + found[False].wrong}"
                )
                ahead = np.array([len(one.parts[0]) < hosts for one in found[True].seen])
                waited, relayed = np.mean(waited_s[ahead]), np.mean(relayed_s[ahead])
                ratios_ahead.append(float(relayed / waited))
                # All others must get as much as a late rank has, once; an all_reduce takes 2 (N - 1) / N.
                bounds.append(hosts / (2 * (hosts - 1)))
                print(
                    f"  where a part went ahead ({ahead.sum()} of {len(ahead)}): {relayed / waited:.2f}; "
                    f"phase 2 over an all_reduce, both at the rate of the wires: {bounds[-1]:.2f}"
                )
                _relays(found[True], hosts)
    if ratios:
        means = [statistics.geometric_mean(values) for values in (ratios, ratios_ahead, bounds)]
        print("geometric mean: {:.2f}; where a part went ahead {:.2f}, by the wires {:.2f}".format(*means))


def _between_s(report: IterationsReport, which: Callable[..., Array]) -> Array:
    """Return the seconds from when the first (np.min) or last rank (np.max) is ready until all are done."""
    ready = which([one.ready_s for one in report.times], axis=0)
    done = np.max([one.done_s for one in report.times], axis=0)
    return np.asarray(done - ready)


def _relays(report: IterationsReport, hosts: int) -> None:
    seen = report.seen
    shares = [sum(rank not in one.parts[0] for one in seen) / max(1, len(seen)) for rank in range(hosts)]
    print("  relays: " + ", ".join(f"rank {rank} {100 * share:.0f} %" for rank, share in enumerate(shares)))


def kills(options: argparse.Namespace) -> None:
    """Print the outcome of each run."""
    chance = random.Random(options.seed)
    lab = None if options.here else lab_of("kills", 4 + options.login, options.mbit)
    hosts = ",".join(host.name for host in lab.hosts[:4]) if lab and options.login else None
    good, recoveries = 0, []
    with standing(lab) if lab else tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for trial in range(options.trials):
            # The job ends if it loses the host that it was started on.
            least = options.kind == "host" and not options.login
            victim = chance.randrange(least, 4) if options.victim is None else options.victim
            strike = Strike(lab, folder, options.kind, victim, chance.random() * 2)
            computing_s = np.full((options.iterations, 4), 0.02)
            asked = Iterations(options.iterations, options.bytes // 4, computing_s=computing_s)
            came = run_inside(lab, folder, asked, "session", strike, hosts)
            if lab and options.kind == "host":
                lifecycle.set_cable(lab, lab.hosts[strike.victim].name, connected=True)
            told = f"{trial:4d}  {options.kind} rank {strike.victim} after {strike.after_s:.2f} s: "
            if isinstance(came, str):
                ended = options.kind == "host" and not hosts and victim == 0 and "LostRankError" in came
                good += ended
                print(f"{told}{came}{'' if ended else '  BAD'}", flush=True)
                continue
            fine = came.wrong == 0 and len(came.lost) <= 1 and len(came.members) >= 3
            good += fine
            if came.lost:
                recoveries.append(recovery_s(came, strike.at_s))
            print(
                f"{told}lost {list(came.lost)}, wrong {came.wrong}, "
                f"longest gap {recovery_s(came, strike.at_s):.2f} s{'' if fine else '  BAD'}",
                flush=True,
            )
    print(f"{good} of {options.trials} good", end="")
    print(f"; recovery median {statistics.median(recoveries):.2f} s" if recoveries else "")


class Strike:
    """Strikes a rank, or its host, some time after the job has begun."""

    def __init__(self, lab: Lab | None, folder: Path, kind: str, victim: int, after_s: float) -> None:
        self.lab, self.folder, self.kind, self.victim, self.after_s = lab, folder, kind, victim, after_s
        self.at_s = math.inf

    def __call__(self, over: threading.Event) -> None:
        while not (self.folder / "started").exists():
            if over.wait(0.05):
                return
        if over.wait(self.after_s):
            return
        self.at_s = time.monotonic()
        if self.kind == "host" and self.lab:
            lifecycle.set_cable(self.lab, self.lab.hosts[self.victim].name, connected=False)
            return
        ranks = self._ranks()
        self._send(ranks, signal.SIGKILL if self.kind == "kill" else signal.SIGSTOP)
        if self.kind == "stop" and not over.wait(4):
            self._send(ranks, signal.SIGCONT)

    def _ranks(self) -> list[int]:
        """Return the process of the victim."""
        if self.lab:
            name = self.lab.namespace(self.lab.hosts[self.victim].name)
            pids = [int(pid) for pid in ip("netns", "pids", name).split()]
            return [pid for pid in pids if b"exec.launcher.worker" in _command(pid)]
        children = psutil.Process().children(recursive=True)
        workers = sorted(one.pid for one in children if b"exec.launcher.worker" in _command(one.pid))
        return workers[self.victim : self.victim + 1]

    def _send(self, pids: list[int], number: int) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def _command(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def recovery_s(report: IterationsReport, struck_s: float) -> float:
    """Return the longest time between two results, the second after the strike, on any survivor."""
    longest_s = 0.0
    for one in report.times:
        gaps_s = np.diff(one.done_s)[one.done_s[1:] > struck_s]
        longest_s = max(longest_s, float(gaps_s.max(initial=0.0)))
    return longest_s


# Iterations, bytes and Mbit/s of each, if nothing else is asked for.
USUAL = {
    "volatile": (300, 8 << 20, 400),
    "interference": (300, 8 << 20, 400),
    "cores": (60, 1 << 20, 100),
    "stragglers": (40, 1 << 20, 100),
    "kills": (100, 1 << 18, 100),
    "rounds": (0, 0, 0),
    "rpc": (300, 0, 0),
}


def main() -> None:
    """Run what is asked for."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("what", choices=(*USUAL, "inside"))
    options.add_argument("folder", nargs="?")
    options.add_argument("--iterations", type=int)
    options.add_argument("--bytes", type=int)
    options.add_argument("--mbit", type=float)
    options.add_argument("--amplify", type=float, action="append")
    options.add_argument("--every", type=int, default=50)
    options.add_argument("--hold", type=float, default=15.0)
    options.add_argument("--restarts", type=int, default=3)
    options.add_argument("--moments", type=int, default=40)
    options.add_argument("--how", choices=("static", "adaptive", "mpi"), action="append")
    options.add_argument("--flows", type=int, default=2, help="interference: how many at a time")
    options.add_argument("--late", type=float, default=0.6)
    options.add_argument("--trials", type=int)
    options.add_argument("--kind", choices=("kill", "stop", "host"), default="kill")
    options.add_argument("--here", action="store_true", help="kills: on this host instead of in a lab")
    options.add_argument("--victim", type=int, choices=range(4), help="kills: this rank, not any")
    options.add_argument(
        "--login",
        action="store_true",
        help="kills: start the job on a host of its own, so that rank 0's may go",
    )
    options.add_argument("--seed", type=int, default=0)
    asked = options.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))
    if asked.what == "inside":
        inside(Path(asked.folder))
        return
    iterations, size, mbit = USUAL[asked.what]
    asked.iterations, asked.bytes = asked.iterations or iterations, asked.bytes or size
    asked.trials = asked.trials or (1000 if asked.what == "rounds" else 20)
    asked.mbit, asked.amplify = asked.mbit or mbit, asked.amplify or [0.0, 0.3, 0.6]
    act = {"volatile": volatile, "interference": interference, "cores": cores, "stragglers": stragglers}
    act |= {"kills": kills, "rounds": rounds, "rpc": rpc}
    act[asked.what](asked)


if __name__ == "__main__":
    main()
