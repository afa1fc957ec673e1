"""Fail-slow campaign in a lab (needs root): is a slow part named, how soon, and how much is won back?

One session of all_reduces runs on the hosts of a lab. In each trial a random host (both ways) or directed
link is slowed by a random factor at a random time, later restored; then some time passes without a fault. A
trial is right if the slowed part is named and nothing else. A part that is named without a fault is a false
alarm. The share of the slowdown that is won back is (slow - adapted) / (slow - healthy), from median
iteration times before the name, at the end of the fault and before the fault. It counts faults that made
iterations at least 1.15 times as long. Iterations that waited for measurements of links are left out.

python -P benchmarks/fail_slow.py [--trials 30] [--seconds 330] [--seed 0] [-o trials.jsonl]

stops after so many trials or seconds. ``--summary trials.jsonl`` sums up what such runs have added.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from adaptive_lab import MBIT, standing

from exec.lab import lifecycle
from exec.lab.model import Lab, LabHost, PairRate
from exec.lab.run import started
from probes.base.progress import Safekeeping

HOSTS, FACTORS = 4, (1.3, 10.0)
# Longest wait for a name, then for new schedules, and the quiet time after each fault.
NAMED_S, ADAPTED_S, QUIET_S = 15.0, 5.0, 12.0
SLOWER = 1.15


@dataclass
class Trial:
    """A fault, or none, and the events that followed; seconds, times by the monotonic clock."""

    fault: list[str]
    factor: float
    at_s: float = 0.0
    end_s: float = 0.0
    named: list[list[str]] = field(default_factory=list)
    named_s: float = math.nan
    recovered_s: float = math.nan
    healthy_s: float = math.nan
    slow_s: float = math.nan
    adapted_s: float = math.nan


def job(comm: Any, arguments: dict[str, Any], progress: Safekeeping) -> None:
    """Run all_reduces until a file says stop; rank 0 writes a line for each iteration and each event."""
    from exec.adaptive.session import Session

    folder, count = Path(arguments["folder"]), arguments["bytes"] // 4
    began_s = time.monotonic()
    session = Session(comm, replan_s=1.0, fence=getattr(progress, "fence", lambda rank: None))
    session.setup(count)
    session.profile(every=arguments["every"])
    rank, seq, told = comm.Get_rank(), 0, 0
    with (folder / f"told.{rank}.jsonl").open("a", buffering=1) as told_file:
        stop = False
        while not stop:
            data = np.full(count, rank + 1.0, np.float32)
            data[-1] = rank == 0 and (folder / "stop").exists()
            started_s = time.monotonic()
            found = session.all_reduce(data).wait(300)
            assert (found[:-1] == sum(range(1, comm.Get_size() + 1))).all(), seq
            stop, seq = bool(found[-1]), seq + 1
            done_s = time.monotonic()
            # A reader of the end of an iteration has read all of its events.
            events = session.events[told:]
            for event in events:
                told_file.write(json.dumps([event.what, began_s + event.at_s, event.detail]) + "\n")
            told += len(events)
            told_file.write(json.dumps(["ran", done_s, done_s - started_s]) + "\n")
    session.close()


class Told:
    """The events that the job has printed so far, read while it writes them."""

    def __init__(self, path: Path) -> None:
        self._path, self._at = path, 0
        self.lines: list[list[Any]] = []

    def read(self) -> list[list[Any]]:
        if self._path.exists():
            with self._path.open() as file:
                file.seek(self._at)
                while (line := file.readline()).endswith("\n"):
                    self._at = file.tell()
                    self.lines.append(json.loads(line))
        return self.lines

    def since(self, what: str, at_s: float) -> list[list[Any]]:
        return [line for line in self.read() if line[0] == what and line[1] >= at_s]

    def median_s(self, from_s: float, to_s: float) -> float:
        """Return the median time of iterations that ended between two moments, without those that waited.

        Links are measured between two requests: the measurement ends while the caller waits for the second.
        """
        lines = self.read()
        measured_s = [line[1] for line in lines if line[0] == "measured"]
        times = [
            seconds
            for what, done_s, seconds in lines
            if what == "ran"
            and from_s < done_s <= to_s
            and not any(done_s - seconds <= at_s <= done_s for at_s in measured_s)
        ]
        return statistics.median(times) if times else math.nan


def slowed(lab: Lab, fault: list[str], factor: float) -> Lab:
    """Return ``lab`` with one host, both ways, or one directed link slower."""
    if len(fault) == 1:
        return replace(
            lab,
            hosts=tuple(
                replace(
                    host,
                    egress_bytes_per_s=host.egress_bytes_per_s / factor,
                    ingress_bytes_per_s=host.ingress_bytes_per_s / factor,
                )
                if host.name == fault[0]
                else host
                for host in lab.hosts
            ),
        )
    return replace(
        lab,
        pairs=tuple(
            replace(pair, bytes_per_s=pair.bytes_per_s / factor) if [pair.src, pair.dst] == fault else pair
            for pair in lab.pairs
        ),
    )


def campaign(options: argparse.Namespace) -> None:
    """Append a line for each trial to the file."""
    chance = np.random.default_rng([options.seed, int(time.time())])
    names = [f"h{at}" for at in range(HOSTS)]
    rate = options.mbit * MBIT
    pairs = tuple(PairRate(src, dst, rate) for src in names for dst in names if src != dst)
    lab = Lab("failslow", tuple(LabHost(name, 1, rate, rate) for name in names), pairs)
    until_s = time.monotonic() + options.seconds
    with standing(lab) as folder:
        arguments = {"folder": str(folder), "bytes": options.bytes, "every": options.every}
        (folder / "asked").write_text(json.dumps(arguments))
        command = [sys.executable, "-P", str(Path(__file__).resolve()), "--inside", str(folder)]
        with started(lab, names[0], command, folder) as process:
            told = Told(folder / "told.0.jsonl")
            waited(process, lambda: len(told.since("ran", 0)) > 60, 120)
            for number in range(options.trials):
                if time.monotonic() + NAMED_S + ADAPTED_S + 2 * QUIET_S > until_s:
                    break
                is_host = bool(chance.integers(2))
                fault = [str(name) for name in chance.choice(names, 1 if is_host else 2, replace=False)]
                factor = float(np.exp(chance.uniform(*np.log(FACTORS))))
                for trial in (Trial(fault, factor), Trial([], 1.0)):
                    carry_out(lab, trial, told, process, float(chance.uniform(1, 3)))
                    with options.output.open("a") as file:
                        file.write(json.dumps(vars(trial)) + "\n")
                    print(number, vars(trial), flush=True)
            (folder / "stop").touch()
            process.wait(60)


def waited(process: subprocess.Popen[bytes], over: Any, limit_s: float) -> bool:
    """Wait until ``over()`` is true; return False after ``limit_s``."""
    deadline_s = time.monotonic() + limit_s
    while not over():
        if process.poll() is not None:
            raise SystemExit("the job has ended")
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.05)
    return True


def carry_out(lab: Lab, trial: Trial, told: Told, process: subprocess.Popen[bytes], before_s: float) -> None:
    """Run one trial, then wait until the named parts have recovered and a quiet time has passed."""
    quiet_s = time.monotonic()
    time.sleep(before_s)
    trial.at_s = time.monotonic()
    now = slowed(lab, trial.fault, trial.factor) if trial.fault else lab
    lifecycle.shape(lab, now)
    try:
        limit_s = NAMED_S if trial.fault else NAMED_S / 2
        if waited(process, lambda: bool(told.since("slow", trial.at_s)), limit_s):
            trial.named_s = told.since("slow", trial.at_s)[0][1] - trial.at_s
            time.sleep(ADAPTED_S)
    finally:
        lifecycle.shape(now, lab)
    trial.end_s = time.monotonic()
    trial.named = [line[2]["hosts"] for line in told.since("slow", quiet_s)]
    trial.healthy_s = told.median_s(quiet_s - 1.0, trial.at_s)
    trial.slow_s = told.median_s(trial.at_s + 0.2, trial.at_s + trial.named_s)
    trial.adapted_s = told.median_s(trial.end_s - 2.0, trial.end_s)
    count = len(trial.named)
    if count and waited(process, lambda: len(told.since("recovered", trial.at_s)) >= count, NAMED_S):
        trial.recovered_s = told.since("recovered", trial.at_s)[-1][1] - trial.end_s
    # Schedules for the network as it was.
    time.sleep(QUIET_S / 4 if trial.fault else 0)


def summary(path: Path) -> None:
    """Print the summary of all trials in a file."""
    trials = [Trial(**json.loads(line)) for line in path.read_text().splitlines()]
    faults = [trial for trial in trials if trial.fault]
    for name, some in (
        ("hosts", [trial for trial in faults if len(trial.fault) == 1]),
        ("links", [trial for trial in faults if len(trial.fault) == 2]),
        ("all", faults),
    ):
        if not some:
            continue
        right = sum(bool(one.named) and all(parts == one.fault for parts in one.named) for one in some)
        also = sum(one.fault in one.named for one in some)
        times_s = sorted(one.named_s for one in some if not math.isnan(one.named_s))
        back = [
            (one.slow_s - one.adapted_s) / (one.slow_s - one.healthy_s)
            for one in some
            if one.slow_s > SLOWER * one.healthy_s and not math.isnan(one.adapted_s)
        ]
        text = f"{name}: {len(some)} faults, {right} named and nothing else ({right / len(some):.1%})"
        text += f", {also} named"
        if times_s:
            ninety = times_s[min(len(times_s) - 1, int(0.9 * len(times_s)))]
            text += f"; time to name median {statistics.median(times_s):.1f} s, 90 % {ninety:.1f} s"
        if back:
            text += f"; won back median {statistics.median(back):.0%} of {len(back)} slowdowns"
        again = sum(not math.isnan(one.recovered_s) for one in some if one.named)
        print(f"{text}; recovered {again} of {sum(bool(one.named) for one in some)}")
    quiet = [trial for trial in trials if not trial.fault]
    alarms = sum(bool(trial.named) for trial in quiet)
    print(f"without a fault: {len(quiet)} trials, {alarms} false alarms")


def inside(folder: Path) -> None:
    """Launch the job in the lab's first host."""
    from exec import launch

    arguments = json.loads((folder / "asked").read_text())
    hosts = ",".join(f"h{at}" for at in range(HOSTS))
    launch("fail_slow:job", arguments, hosts=hosts, wires="sockets", survive=True, timeout_s=3600)


def main() -> None:
    """Run what is asked for."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--trials", type=int, default=30)
    options.add_argument("--seconds", type=float, default=330.0)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--mbit", type=float, default=100.0)
    options.add_argument("--bytes", type=int, default=512 << 10)
    options.add_argument("--every", type=int, default=10)
    options.add_argument("-o", "--output", type=Path, default=Path("fail_slow.jsonl"))
    options.add_argument("--summary", type=Path)
    options.add_argument("--inside", type=Path)
    asked = options.parse_args()
    if asked.inside:
        inside(asked.inside)
    elif asked.summary:
        summary(asked.summary)
    else:
        campaign(asked)


if __name__ == "__main__":
    main()
