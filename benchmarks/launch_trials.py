"""Disturb runs at random moments: do strangers break or delay a run, does a signal leave anything behind?

Each trial starts ranks by `exec.launch` in a separate process: on this host (they report through a socket in
a folder), or as for several hosts (``localhost:N``: by TCP).

Strangers: at a random moment between the start and the end of the run, somebody connects to where it listens
and says nothing, garbage, HTTP, the hello of TLS or half a greeting, or closes or resets at once. In some
trials a hundred strangers do so at once, or a stranger listens at one of the addresses that the ranks are
given. A run is broken if it does not return the right value. It is delayed if it takes a second longer than
the slowest undisturbed run. An undisturbed run comes before each trial, so that both kinds meet the other
work of the machine.

Signals: INT, TERM or KILL goes to the process that started the run, to its mpirun, or to a rank, at a random
moment. A trial is good if three things hold. The run ended within --within seconds with the status of that
signal, or with the right value if the signal came too late or its rank ignores it. The run left no process,
file or shared memory. A killed rank is named.

    python -P benchmarks/launch_trials.py [--trials 100] [--seed 0] [--kind strangers|signals|all]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import select
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = str(Path(__file__).resolve().parent)
if HERE not in sys.path:
    sys.path.insert(0, HERE)

from fault_trials import MARK, launcher_of, marked, ranks_of, settled, shared_files  # noqa: E402

from exec import launch  # noqa: E402
from exec.errors import RankFailed  # noqa: E402
from exec.launcher import session  # noqa: E402
from probes.base.errors import CcctlError, UnavailableError  # noqa: E402

RANKS = 3
# Seconds that the ranks of a run work once all have started.
WORK_S = {"strangers": 0.5, "signals": 2.0}
LATE_S = 1.0
MODES = ("folder", "tcp")
TLS_HELLO = bytes.fromhex("16030100f8010000f40303") + bytes(range(32)) + bytes(200)
WORDS = {
    "silent": b"",
    "garbage": bytes(range(255, 0, -1)) * 64,
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "tls": TLS_HELLO,
    "half a greeting": bytes(20),
    "closes": b"",
    "resets": b"",
}
WAYS = (*WORDS, "a hundred at once", "a foreign listener")
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
VICTIMS = ("parent", "mpirun", "rank")


def work(comm: Any, seconds: float, progress: Any) -> int:
    """Greet all ranks, sleep, and greet all again; return the number of ranks."""
    progress.waiting(-1, "the first greeting")
    comm.barrier()
    time.sleep(seconds)
    progress.waiting(-1, "the second greeting")
    found: int = comm.allreduce(1)
    return found


def run_one(mode: str, seconds: float, foreign: str) -> int:
    """Launch the run in this process; print when it starts, then how long it took; return its exit status."""
    if foreign:
        of_session = session.published
        # mypy does not see a name that the module imports as the module's own.
        session.published = lambda listeners: [foreign, *of_session(listeners)]  # type: ignore[attr-defined]
    where: dict[str, Any] = {"ranks": RANKS} if mode == "folder" else {"hosts": f"localhost:{RANKS}"}
    print("starts", flush=True)
    began_s = time.monotonic()
    try:
        value = launch("launch_trials:work", seconds, timeout_s=90, **where)
    except (CcctlError, RankFailed) as error:
        print(type(error).__name__, error, *getattr(error, "__notes__", ()), sep="\n", file=sys.stderr)
        return 69 if isinstance(error, UnavailableError) else 1
    except KeyboardInterrupt:
        return 130
    print(value, time.monotonic() - began_s, flush=True)
    return 0


@dataclass
class Run:
    """A run under way in a separate process, with a folder for all that it writes."""

    process: subprocess.Popen[str]
    folder: Path
    mark: str

    def told_start(self) -> None:
        """Wait until the run is about to start its ranks."""
        assert self.process.stdout is not None
        self.process.stdout.readline()

    def listens(self) -> list[Any]:
        """Return the address at which ranks reach the run: the path of a socket, or (host, port)."""
        import psutil

        with contextlib.suppress(psutil.Error):
            found = psutil.Process(self.process.pid).net_connections("tcp")
            ports = [one.laddr for one in found if one.status == psutil.CONN_LISTEN]
            return [str(path) for path in self.folder.glob("ccctl-session-*/control")] + [
                (address, port) for address, port in ports
            ]
        return []


@contextlib.contextmanager
def started(mode: str, seconds: float, foreign: str = "") -> Iterator[Run]:
    """Yield a run; end it with all its processes whatever happens."""
    folder = Path(tempfile.mkdtemp(prefix="launch-trial-"))
    mark = folder.name
    with (folder / "said").open("w") as said:
        command = [sys.executable, "-P", __file__, "--run", mode, str(seconds), foreign]
        process = subprocess.Popen(
            command,
            env={**os.environ, MARK: mark, "TMPDIR": str(folder)},
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
        )
    try:
        yield Run(process, folder, mark)
    finally:
        process.kill()
        process.wait()
        for pid, _ in marked(mark):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        assert process.stdout is not None
        process.stdout.close()
        shutil.rmtree(folder, ignore_errors=True)


# --- strangers ---


def disturb(at: Any, way: str, ends: list[socket.socket]) -> None:
    """Connect one stranger to an address; connections that stay open are added to ``ends``."""
    end = socket.socket(socket.AF_UNIX if isinstance(at, str) else socket.AF_INET)
    ends.append(end)
    end.settimeout(5)
    with contextlib.suppress(OSError):
        end.connect(at)
        end.sendall(WORDS[way])
        if way == "resets" and not isinstance(at, str):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if way in ("closes", "resets"):
            end.close()


def strangers(run: Run, way: str, after_s: float, chance: random.Random, ends: list[socket.socket]) -> None:
    """Wait until the run listens, then for ``after_s``; then let strangers come, unless the run has ended."""
    while not (places := run.listens()):
        if run.process.poll() is not None:
            return
        time.sleep(0.01)
    time.sleep(after_s)
    crowd = [chance.choice(list(WORDS)) for _ in range(100)] if way == "a hundred at once" else [way]
    for one in crowd if run.process.poll() is None and way in WAYS else ():
        disturb(places[0], one, ends)


@contextlib.contextmanager
def foreign_listener(way: str) -> Iterator[str]:
    """Start a stranger that listens at its own address, and treats each connection in its way."""
    kept: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.2)
        over = threading.Event()

        def take() -> None:
            while not over.is_set():
                with contextlib.suppress(OSError):
                    end, _ = listener.accept()
                    kept.append(end)
                    end.sendall(WORDS[way])
                    if way in ("closes", "resets"):
                        end.close()

        thread = threading.Thread(target=take)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            over.set()
            thread.join()
            for end in kept:
                end.close()


def outcome(mode: str, way: str, after_s: float, chance: random.Random) -> tuple[bool, float, str]:
    """Return (whether the run gave the right value, seconds that it took, its output).

    Without a ``way`` the run is undisturbed.
    """
    ends: list[socket.socket] = []
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: deque(map(socket.socket.close, ends)))
        foreign = ""
        if way == "a foreign listener":
            foreign, way = stack.enter_context(foreign_listener(chance.choice(list(WORDS)))), ""
        run = stack.enter_context(started(mode, WORK_S["strangers"], foreign))
        run.told_start()
        strangers(run, way, after_s, chance, ends)
        assert run.process.stdout is not None
        ready, _, _ = select.select([run.process.stdout], [], [], 120)
        words = run.process.stdout.readline().split() if ready else []
        with contextlib.suppress(subprocess.TimeoutExpired):
            run.process.wait(30)
        right = len(words) == 2 and words[0] == str(RANKS) and run.process.returncode == 0
        return right, float(words[1]) if right else float("inf"), (run.folder / "said").read_text()


def stranger_trials(trials: int, chance: random.Random) -> int:
    """Print each trial; return the number of runs that were broken or delayed."""
    undisturbed: dict[str, list[float]] = {mode: [] for mode in MODES}
    done: list[tuple[str, bool, float]] = []
    print("trial mode    way                moment (s) right took (s) undisturbed (s)")
    for number in range(trials):
        mode, way = MODES[number % 2], WAYS[(number // 2) % len(WAYS)]
        if way == "a foreign listener":
            mode = "tcp"
        right, quiet_s, said = outcome(mode, "", 0.0, chance)
        assert right, f"an undisturbed run failed: {said}"
        undisturbed[mode].append(quiet_s)
        after_s = chance.uniform(0, statistics.median(undisturbed[mode]))
        right, took_s, said = outcome(mode, way, after_s, chance)
        done.append((mode, right, took_s))
        print(
            f"{number:5} {mode:7} {way:18} {after_s:10.2f} {'yes' if right else 'NO':>5} {took_s:8.2f} "
            f"{quiet_s:15.2f}",
            flush=True,
        )
        if not right:
            print(said)
    slowest_s = {mode: max(found) for mode, found in undisturbed.items() if found}
    broken = sum(not right for _, right, _ in done)
    late = sum(right and took_s > slowest_s[mode] + LATE_S for mode, right, took_s in done)
    disturbed_s = [took_s for _, right, took_s in done if right]
    usual_s = statistics.median(took_s for found in undisturbed.values() for took_s in found)
    print(
        f"of {trials} runs with strangers {broken} broken, {late} delayed by more than {LATE_S:g} s; "
        f"median {statistics.median(disturbed_s):.2f} s, undisturbed {usual_s:.2f} s"
    )
    return broken + late


# --- signals ---


def pid_of(run: Run, victim: str, rank: int) -> int | None:
    """Return the process of the victim once it exists; None if the run ends before."""
    while True:
        with contextlib.suppress(RuntimeError):
            if victim == "parent":
                return run.process.pid
            if victim == "mpirun":
                return launcher_of(run.mark, run.process.pid)
            if (found := ranks_of(run.mark).get(rank)) is not None:
                return found
        if run.process.poll() is not None:
            return None
        time.sleep(0.01)


def ended(run: Run, within_s: float, files: set[Path]) -> int | None:
    """Return the exit status of the run; None if it takes too long.

    Its shared files are added to ``files``.
    """
    deadline_s = time.monotonic() + within_s
    while run.process.poll() is None and time.monotonic() < deadline_s:
        files |= shared_files(run.mark)
        time.sleep(0.1)
    return run.process.poll()


def as_it_should(victim: str, how: signal.Signals, rank: int, status: int | None, said: str) -> bool:
    """Return whether a run may end with this status after that signal.

    Status 0 is right if the signal came too late, or to a rank that ignores it.
    """
    # Python itself has one where a rank is interrupted while it loads; mpirun hands that on.
    if any("Traceback" in line and not line.startswith("mpirun: ") for line in said.splitlines()):
        return False
    if victim == "parent":
        return status in (0, -how if how == signal.SIGKILL else 128 + how)
    if victim == "mpirun":
        return status in (0, 1, 69)
    blamed = next((line for line in said.splitlines() if "rank" in line), "")
    named = f"rank {rank} " in blamed or f"missing: {rank};" in blamed
    return status == 0 or (status in (1, 69) and named)


def signal_trials(trials: int, chance: random.Random, within_s: float) -> int:
    """Print each trial; return the number of bad ones."""
    wrong = 0
    print("trial mode    signal  victim  rank moment (s) ended in (s) status as it should processes files")
    for number in range(trials):
        mode, victim = MODES[number % 2], VICTIMS[(number // 2) % 3]
        how, rank = chance.choice(SIGNALS), chance.randrange(RANKS) if victim == "rank" else -1
        after_s = chance.uniform(0, WORK_S["signals"] + (1.5 if victim == "parent" else 1.0))
        with started(mode, WORK_S["signals"]) as run:
            run.told_start()
            pid = pid_of(run, victim, rank)
            time.sleep(after_s)
            files = shared_files(run.mark)
            began_s = time.monotonic()
            if pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, how)
            status = ended(run, within_s, files)
            took_s = time.monotonic() - began_s
            left = settled(run.mark, files, run.folder)
            said = (run.folder / "said").read_text()
        right = as_it_should(victim, how, rank, status, said)
        good = right and not any(left)
        wrong += not good
        print(
            f"{number:5} {mode:7} {how.name:>7} {victim:>7} {rank:5} {after_s:10.2f} {took_s:12.1f} "
            f"{status!s:>6} {'yes' if right else 'NO':>12} {len(left[0]):9} {len(left[1]):5}",
            flush=True,
        )
        if not good:
            print(said, *left[0], *left[1], sep="\n")
    print(f"of {trials} runs with a signal {wrong} ended late, otherwise than they should, or left something")
    return wrong


def main() -> None:
    """Print the trials of each kind, then the number of bad ones; the exit status is 1 if there are any."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--trials", type=int, default=100, help="of each kind")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--kind", choices=["strangers", "signals", "all"], default="all")
    options.add_argument("--within", type=float, default=30.0, help="seconds in which a run must end")
    options.add_argument("--run", nargs=3, help=argparse.SUPPRESS)
    asked = options.parse_args()
    # A shell lets what it starts in the background ignore Ctrl-C, and so would all that we start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if asked.run:
        sys.exit(run_one(asked.run[0], float(asked.run[1]), asked.run[2]))
    chance, wrong = random.Random(asked.seed), 0
    if asked.kind != "signals":
        wrong += stranger_trials(asked.trials, chance)
    if asked.kind != "strangers":
        wrong += signal_trials(asked.trials, chance, asked.within)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
