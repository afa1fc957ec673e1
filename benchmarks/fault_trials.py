"""Kill or stop a part of a running collective, again and again: does the command always end well?

Each trial starts `ccctl bench` on this host and, at a random moment after its ranks have started, sends a
signal: SIGKILL or SIGSTOP to a random rank, or SIGINT, SIGTERM or SIGKILL to its mpirun or to the command
itself. A line says how long the command took to end and with which status, whether it named the rank and the
step, and what was left behind: processes of the run, its temporary files and its shared memory.

A trial is good if the command ended within --within seconds, without a traceback, and left nothing. After a
signal to a rank or mpirun its status must be 1 (69 if MPI had not started), and a rank must be named. After a
signal to the command its status must be 130, 143 or the signal. The last line counts; the exit status is 1 if
any trial failed.

    python -P benchmarks/fault_trials.py [--trials 50] [--ranks 4] [--seed 0] [--within 30] [--at all]
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ccctl.artifacts import codec
from synth.collective import collective
from synth.methods.ring import synthesize
from synth.networks.families import family

MARK = "CCCTL_FAULT_TRIAL"
_SHARED = re.compile(r"/dev/shm/\S+")
_FAULTS = {
    "rank": (signal.SIGKILL, signal.SIGSTOP),
    "mpirun": (signal.SIGINT, signal.SIGTERM, signal.SIGKILL),
    "command": (signal.SIGINT, signal.SIGTERM, signal.SIGKILL),
}
# The ranks need so long to start MPI, agree and reach the timed runs, which do not end by themselves.
_LATEST_S = 3.0
# Ranks whose command was killed notice at their next heartbeat, and mpirun when they are gone.
_SETTLE_S = 10.0


@dataclass(frozen=True)
class Trial:
    """A fault, its victim and its outcome; ``rank`` is -1 if the victim was not a rank."""

    how: signal.Signals
    victim: str
    rank: int
    after_s: float
    took_s: float
    status: int | None
    said: str
    processes: int
    files: int

    @property
    def named(self) -> bool:
        """Whether the command blamed the right rank; before its hello, the rank is named as missing."""
        blamed = next((line for line in self.said.splitlines() if "rank" in line), "")
        return f"rank {self.rank} " in blamed or f"missing: {self.rank};" in blamed

    @property
    def good(self) -> bool:
        """Whether the command ended in time and as it should, and left nothing."""
        if self.victim == "rank":
            well = self.status in (1, 69) and self.named
        elif self.victim == "mpirun":
            well = self.status in (1, 69)
        else:
            well = self.status in (128 + self.how, -self.how)
        return well and "Traceback" not in self.said and not self.processes and not self.files


def marked(mark: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield every process whose environment contains the mark, with its environment."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "environ").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        found = dict(word.partition("=")[::2] for word in words)
        if found.get(MARK) == mark:
            yield int(folder.name), found


def words_of(pid: int) -> list[str]:
    """Return the command line of a process; none if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []


def ranks_of(mark: str) -> dict[int, int]:
    """Return the process of each rank that is there."""
    names = ("OMPI_COMM_WORLD_RANK", "PMI_RANK")
    return {
        int(found[name]): pid
        for pid, found in marked(mark)
        for name in names
        if name in found and "exec.launcher.worker" in words_of(pid)
    }


def launcher_of(mark: str, command: int) -> int:
    """Return the mpirun that the command has started."""
    for pid, found in marked(mark):
        if pid != command and "exec.launcher.worker" in words_of(pid) and "OMPI_COMM_WORLD_RANK" not in found:
            return pid
    raise RuntimeError("no mpirun was found")


def shared_files(mark: str) -> set[Path]:
    """Return the folder of the run's shared memory, and the named memory that its processes have mapped."""
    found: set[Path] = set()
    for pid, environment in marked(mark):
        found |= {Path(environment[name]) for name in ("CCCTL_SCRATCH",) if name in environment}
        with suppress(OSError):
            found |= {Path(name) for name in _SHARED.findall(Path(f"/proc/{pid}/maps").read_text())}
    return found


def trial(
    schedule: Path, ranks: int, chance: random.Random, victims: Sequence[str], within_s: float
) -> Trial:
    """Run the benchmark, send it a signal, and return the trial."""
    victim = chance.choice(victims)
    how, after_s = chance.choice(_FAULTS[victim]), chance.uniform(0, _LATEST_S)
    rank = chance.randrange(ranks) if victim == "rank" else -1
    mark = f"{os.getpid()}-{chance.random()}"
    folder = Path(tempfile.mkdtemp(prefix="fault-trial-"))
    with (folder / "said").open("w+") as said:
        command = [sys.executable, "-P", "-m", "ccctl", "bench", str(schedule), "-b", "1M", "-e", "4M"]
        process = subprocess.Popen(
            [*command, "--iters", "1000000"],
            env={**os.environ, MARK: mark, "TMPDIR": str(folder)},
            stdout=subprocess.DEVNULL,
            stderr=said,
        )
        while len(found := ranks_of(mark)) < ranks and process.poll() is None:
            time.sleep(0.05)
        time.sleep(after_s)
        files = shared_files(mark)
        pids = {"command": process.pid, "mpirun": launcher_of(mark, process.pid), **found}
        os.kill(pids[rank if victim == "rank" else victim], how)
        began_s = time.monotonic()
        status: int | None = None
        with suppress(subprocess.TimeoutExpired):
            status = process.wait(within_s)
        took_s = time.monotonic() - began_s
        process.kill()
        process.wait()
        left = settled(mark, files, folder)
        for pid, _ in marked(mark):
            os.kill(pid, signal.SIGKILL)
        said.seek(0)
        done = Trial(how, victim, rank, after_s, took_s, status, said.read(), *left)
    shutil.rmtree(folder)
    return done


def settled(mark: str, files: set[Path], folder: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the leftovers of the run as (processes by command line, files by path), after time to end."""
    deadline_s = time.monotonic() + _SETTLE_S
    while True:
        processes = tuple(" ".join(words_of(pid)) for pid, _ in marked(mark))
        # os.walk passes over what vanishes meanwhile.
        beside = {Path(at) / name for at, _, names in os.walk(folder) for name in names if name != "said"}
        kept = tuple(str(path) for path in sorted(files | beside) if path.exists())
        if not (processes or kept) or time.monotonic() > deadline_s:
            return processes, kept
        time.sleep(0.05)


def main() -> None:
    """Print one line for each trial, then how many went well."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--trials", type=int, default=50)
    options.add_argument("--ranks", type=int, default=4)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--within", type=float, default=30.0)
    options.add_argument("--at", choices=[*_FAULTS, "all"], default="all", help="whom the signals go to")
    options.add_argument("--verbose", action="store_true", help="show what the command says, too")
    asked = options.parse_args()
    # A shell lets what it starts in the background ignore Ctrl-C, and so would all that we start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    chance, good = random.Random(asked.seed), 0
    # Half of all hit a rank: only there somebody is to be named.
    victims = ("rank", "rank", "mpirun", "command") if asked.at == "all" else (asked.at,)
    print("trial  signal  victim rank after (s) ended in (s) status named step processes files")
    with tempfile.TemporaryDirectory() as folder:
        schedule = Path(folder) / "ring.json"
        network = family(f"ring:{asked.ranks}", [1e-6], [5e9])
        wanted = collective("all_reduce", asked.ranks, asked.ranks)
        codec.write(str(schedule), "schedule", synthesize(network, wanted, 1 << 18))
        for number in range(asked.trials):
            done = trial(schedule, asked.ranks, chance, victims, asked.within)
            good += done.good
            named = "-" if done.rank < 0 else "yes" if done.named else "NO"
            print(
                f"{number:5} {done.how.name:>7} {done.victim:>7} {done.rank:4} {done.after_s:9.2f} "
                f"{done.took_s:12.1f} {done.status!s:>6} {named:>5} "
                f"{'yes' if 'threadblock' in done.said else 'no':>4} "
                f"{len(done.processes):9} {len(done.files):5}",
                flush=True,
            )
            if asked.verbose or not done.good:
                print(done.said, *done.processes, *done.files, sep="\n")
    print(f"{good} of {asked.trials} ended in time and as they should, and left nothing behind")
    sys.exit(good < asked.trials)


if __name__ == "__main__":
    main()
