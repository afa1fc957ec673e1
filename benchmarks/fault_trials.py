"""Kill or stop a rank in the middle of a collective, again and again: does the command always end well?

Each trial starts `ccctl bench` on this host, sends SIGKILL or SIGSTOP to a random rank at a random moment,
and prints how long the command took to end, whether it named the rank and the step, and what was left
behind: processes of the run, and files of its shared memory. The last line counts; the exit status is 1 if
any trial failed.

    python -P benchmarks/fault_trials.py [--trials 50] [--ranks 4] [--seed 0] [--within 30]
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ccctl import artifacts
from synth.collective import collective
from synth.families import family
from synth.methods.ring import synthesize

_MARK = "CCCTL_FAULT_TRIAL"
_SHARED = re.compile(r"/dev/shm/\S+")


@dataclass(frozen=True)
class Trial:
    """What was done to which rank, and what came of it."""

    how: str
    rank: int
    after_s: float
    took_s: float
    status: int | None
    named: bool
    step: bool
    processes: int
    files: int

    @property
    def good(self) -> bool:
        """Whether the command ended in time, blamed the right rank, and left nothing."""
        return self.status not in (None, 0) and self.named and not self.processes and not self.files


def marked(mark: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Every process whose environment carries the mark, with that environment."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "environ").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        found = dict(word.partition("=")[::2] for word in words)
        if found.get(_MARK) == mark:
            yield int(folder.name), found


def ranks_of(mark: str) -> dict[int, int]:
    """The process of each rank that is there."""
    names = ("OMPI_COMM_WORLD_RANK", "PMI_RANK")
    return {
        int(found[name]): pid
        for pid, found in marked(mark)
        for name in names
        if name in found and "ccctl.worker" in Path(f"/proc/{pid}/cmdline").read_text()
    }


def shared_files(mark: str) -> set[Path]:
    """The folder that the run shares memory in, and the named memory that its processes have mapped."""
    found: set[Path] = set()
    for pid, environment in marked(mark):
        found |= {Path(environment[name]) for name in ("CCCTL_SCRATCH",) if name in environment}
        with suppress(OSError):
            found |= {Path(name) for name in _SHARED.findall(Path(f"/proc/{pid}/maps").read_text())}
    return found


def trial(schedule: Path, ranks: int, chance: random.Random, within_s: float, verbose: bool) -> Trial:
    """One run of the benchmark that loses a rank."""
    how, rank, after_s = chance.choice(("KILL", "STOP")), chance.randrange(ranks), chance.uniform(0, 6)
    mark = f"{os.getpid()}-{chance.random()}"
    command = [sys.executable, "-P", "-m", "ccctl", "bench", str(schedule), "-b", "1M", "-e", "4M"]
    process = subprocess.Popen(
        [*command, "--iters", "1000000"],
        env={**os.environ, _MARK: mark},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    while len(found := ranks_of(mark)) < ranks and process.poll() is None:
        time.sleep(0.05)
    time.sleep(after_s)
    files = shared_files(mark)
    os.kill(found[rank], signal.SIGKILL if how == "KILL" else signal.SIGSTOP)
    began_s = time.monotonic()
    status: int | None = None
    said = ""
    try:
        said = process.communicate(timeout=within_s)[1]
        status = process.returncode
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
    took_s = time.monotonic() - began_s
    left = [pid for pid, _ in marked(mark)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    if verbose:
        print(said)
    blamed = next((line for line in said.splitlines() if "rank" in line), "")
    return Trial(
        how,
        rank,
        after_s,
        took_s,
        status,
        # Before it has said hello, a rank is known as one that is missing.
        f"rank {rank} " in blamed or f"missing: {rank};" in blamed,
        "threadblock" in said,
        len(left),
        sum(path.exists() for path in files),
    )


def main() -> None:
    """Print one line for each trial, then how many went well."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--trials", type=int, default=50)
    options.add_argument("--ranks", type=int, default=4)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--within", type=float, default=30.0)
    options.add_argument("--verbose", action="store_true", help="show what the command says, too")
    asked = options.parse_args()
    chance, good = random.Random(asked.seed), 0
    print("trial signal rank after (s) ended in (s) status named step processes files")
    with tempfile.TemporaryDirectory() as folder:
        schedule = Path(folder) / "ring.json"
        network = family(f"ring:{asked.ranks}", [1e-6], [5e9])
        wanted = collective("all_reduce", asked.ranks, asked.ranks)
        artifacts.write(str(schedule), "schedule", synthesize(network, wanted, 1 << 18))
        for number in range(asked.trials):
            done = trial(schedule, asked.ranks, chance, asked.within, asked.verbose)
            good += done.good
            print(
                f"{number:5} {done.how:>6} {done.rank:4} {done.after_s:9.2f} {done.took_s:12.1f} "
                f"{done.status!s:>6} {'yes' if done.named else 'NO':>5} {'yes' if done.step else 'no':>4} "
                f"{done.processes:9} {done.files:5}",
                flush=True,
            )
    print(f"{good} of {asked.trials} ended in time, named the rank and left nothing behind")
    sys.exit(good < asked.trials)


if __name__ == "__main__":
    main()
