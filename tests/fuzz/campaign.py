"""The campaign: mutants by the thousand, in workers with a limit of memory and a watch over their time.

``python -P tests/fuzz/campaign.py --minutes 30 --seed 7`` is ``make fuzz MINUTES=30 SEED=7``. Mutant i of
a seed is the same on every machine with the same corpus. Each kind of finding is written once, as a file in
tests/fuzz/findings that a test replays.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import faulthandler
import hashlib
import json
import logging
import mmap
import os
import pickle
import random
import resource
import secrets
import signal
import socket
import struct
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/helpers"), str(ROOT / "tests/fuzz")]
# Tests import this module, too, and their commands inherit their variables.
if __name__ == "__main__":
    # Nothing that a mutant names is installed, and each process is one of several: one thread each.
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", NO_COLOR="1")
    # Files that live for a moment need no disk.
    if os.access("/dev/shm", os.W_OK) and "TMPDIR" not in os.environ:
        os.environ["TMPDIR"] = tempfile.tempdir = "/dev/shm"

from corpus import corpus  # noqa: E402
from trials import Finding, Mutant, innermost, made, tried  # noqa: E402

__all__ = ["FINDINGS", "Tally", "campaign", "kept", "mutant_of", "replayed"]

FINDINGS = Path(__file__).parent / "findings"
HANG_S = 10.0
MOST_BYTES = 2 << 30
_MOST_FILE = 200_000
# State of a worker: the number of its mutant, and its start by the monotonic clock.
_AT = struct.Struct("qd")


@dataclass
class Tally:
    """The result of a campaign: mutants by kind and mutation, and one finding of each kind."""

    mutants: Counter[str] = field(default_factory=Counter)
    findings: Counter[str] = field(default_factory=Counter)
    kinds: dict[tuple[str, str], tuple[int, Finding]] = field(default_factory=dict)
    peak_bytes: int = 0
    slowest_s: float = 0.0

    @property
    def total(self) -> int:
        return sum(self.mutants.values())

    def add(self, number: int, found: list[Finding]) -> list[tuple[int, Finding]]:
        """Count these and return those that are the first of their kind."""
        new: list[tuple[int, Finding]] = []
        for finding in found:
            self.findings[finding.what] += 1
            if (finding.what, finding.where) not in self.kinds:
                self.kinds[finding.what, finding.where] = number, finding
                new.append((number, finding))
        return new


def mutant_of(seed: int, number: int, *, whole: bool = True) -> tuple[Mutant, random.Random]:
    """Mutant ``number`` of ``seed``, and what its commands draw from."""
    rng = random.Random(f"{seed}/{number}")
    return made(rng, whole=whole), rng


def campaign(
    seed: int,
    *,
    seconds: float | None = None,
    mutants: int | None = None,
    workers: int = 2,
    whole: bool = True,
    say: bool = True,
) -> Tally:
    """Run until the time is over or so many mutants were tried; returns what they came to."""
    for number in range(30):
        # Every worker inherits what the first commands import and compile.
        with tempfile.TemporaryDirectory() as folder:
            mutant, rng = mutant_of(seed, -1 - number, whole=whole)
            tried(mutant, rng, Path(folder))
    tally, begun_s = Tally(), time.monotonic()
    crew = [_Worker(seed, row, workers, mutants, whole) for row in range(workers)]
    told_s = begun_s
    try:
        while any(one.pid for one in crew):
            ready = wait([one.results for one in crew if one.pid], 0.25)
            for one in crew:
                if one.pid and one.results in ready:
                    _collect(one, tally, say)
                if one.pid:
                    _watch(one, tally, say)
            now_s = time.monotonic()
            if seconds is not None and now_s - begun_s > seconds:
                break
            if say and now_s - told_s > 30:
                told_s = now_s
                print(f"{now_s - begun_s:.0f} s: {_line(tally)}", file=sys.stderr, flush=True)
    finally:
        for one in crew:
            one.end()
    return tally


class _Worker:
    """A process that tries every n-th mutant, begun anew behind the one that ended it."""

    def __init__(self, seed: int, row: int, workers: int, mutants: int | None, whole: bool) -> None:
        self.seed, self.row, self.workers, self.mutants, self.whole = seed, row, workers, mutants, whole
        self.at = mmap.mmap(-1, _AT.size)
        self.stacks = tempfile.TemporaryFile()  # noqa: SIM115 - closed by end()
        self.folder = tempfile.TemporaryDirectory(prefix="ccctl-fuzz-")
        self.buffer = b""
        self.pid = self.results = 0
        self.watched, self.used_s = -1, 0.0
        self.start(row)

    def start(self, first: int) -> None:
        self.results, theirs = os.pipe()
        self.at[:] = _AT.pack(-1, time.monotonic())
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid:
            os.close(theirs)
            return
        os.close(self.results)
        with contextlib.suppress(BaseException):
            self._work(first, theirs)
        os._exit(0)

    def _work(self, first: int, results: int) -> None:
        faulthandler.register(signal.SIGUSR1, self.stacks)
        faulthandler.enable(self.stacks)
        silent = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(silent, stream)
        logging.disable(logging.CRITICAL)
        os.chdir(self.folder.name)
        in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (in_use + MOST_BYTES, in_use + MOST_BYTES))
        number = first
        while self.mutants is None or number < self.mutants:
            begun_s = time.monotonic()
            self.at[:] = _AT.pack(number, begun_s)
            name, found = self._one(number)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            message = pickle.dumps((number, name, found, peak, time.monotonic() - begun_s))
            with open(results, "wb", closefd=False) as stream:
                stream.write(struct.pack("q", len(message)) + message)
            number += self.workers

    def _one(self, number: int) -> tuple[str, list[Finding]]:
        folder = Path(self.folder.name) / "at"
        folder.mkdir(exist_ok=True)
        try:
            mutant, rng = mutant_of(self.seed, number, whole=self.whole)
            return f"{mutant.kind} {mutant.how}", tried(mutant, rng, folder)
        except MemoryError:
            return "unknown", [Finding("memory", "of the campaign itself", (), "")]
        except BaseException:
            trace = traceback.format_exc()
            return "unknown", [Finding("campaign", innermost(trace) + trace[-200:], (), trace)]

    def end(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0
            os.close(self.results)
        self.stacks.close()
        self.folder.cleanup()


def _collect(one: _Worker, tally: Tally, say: bool) -> None:
    """Take in what a worker has sent; one that has ended without a word was ended by its mutant."""
    received = os.read(one.results, 1 << 20)
    one.buffer += received
    while len(one.buffer) >= 8 and len(one.buffer) >= 8 + struct.unpack("q", one.buffer[:8])[0]:
        size = struct.unpack("q", one.buffer[:8])[0]
        number, name, found, peak, seconds = pickle.loads(one.buffer[8 : 8 + size])
        one.buffer = one.buffer[8 + size :]
        tally.mutants[name] += 1
        tally.peak_bytes = max(tally.peak_bytes, peak)
        tally.slowest_s = max(tally.slowest_s, seconds)
        _tell(tally.add(number, found), one.seed, say, one.whole)
    if received:
        return
    _, status = os.waitpid(one.pid, 0)
    os.close(one.results)
    one.pid = 0
    number, _ = _AT.unpack(one.at[:])
    if one.mutants is not None and number + one.workers >= one.mutants and status == 0:
        return
    one.stacks.seek(0)
    stack = one.stacks.read().decode(errors="replace")
    where = _place(stack)
    finding = Finding("death", f"status {status} at {where}", (), stack[-4000:])
    tally.mutants["ended its process"] += 1
    _tell(tally.add(number, [finding]), one.seed, say, one.whole)
    one.start(number + one.workers)


def _watch(one: _Worker, tally: Tally, say: bool) -> None:
    """End a worker whose mutant takes too long, and say where it was."""
    number, since_s = _AT.unpack(one.at[:])
    if number < 0 or time.monotonic() - since_s < HANG_S:
        return
    # On a machine that others use, too, only the time of the processor says who is slow.
    if number != one.watched:
        one.watched, one.used_s = number, _used_s(one.pid)
    if _used_s(one.pid) - one.used_s < HANG_S / 2 and time.monotonic() - since_s < 6 * HANG_S:
        return
    one.stacks.seek(0)
    one.stacks.truncate()
    with contextlib.suppress(ProcessLookupError):
        os.kill(one.pid, signal.SIGUSR1)
    time.sleep(0.3)
    os.kill(one.pid, signal.SIGKILL)
    os.waitpid(one.pid, 0)
    os.close(one.results)
    one.pid, one.buffer = 0, b""
    one.stacks.seek(0)
    stack = one.stacks.read().decode(errors="replace")
    tally.mutants["took too long"] += 1
    _tell(tally.add(number, [Finding("hang", _place(stack), (), stack[-4000:])]), one.seed, say, one.whole)
    one.start(number + one.workers)


def _used_s(pid: int) -> float:
    """Seconds of the processor that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _place(stack: str) -> str:
    """The innermost line of the project in what faulthandler wrote."""
    for line in stack.splitlines():
        for folder in ("/ccctl/", "/exec/", "/synth/", "/probes/"):
            if folder in line and "/tests/" not in line and "site-packages" not in line:
                return (
                    folder[1:]
                    + line.split(folder, 1)[1].split(" in ")[-1]
                    + " "
                    + line.split('"')[1].rsplit("/", 1)[-1]
                )
    return "?"


def _tell(new: list[tuple[int, Finding]], seed: int, say: bool, whole: bool) -> None:
    for number, finding in new:
        if say:
            place = f"mutant {number} of seed {seed}: {' '.join(finding.command)}"
            print(f"{finding.what}: {finding.where} ({place})", file=sys.stderr, flush=True)
            # A fault of the campaign itself may have no mutant to write.
            if finding.what != "campaign":
                _written(seed, number, finding, whole)


def _written(seed: int, number: int, finding: Finding, whole: bool) -> Path | None:
    """Write a finding as a file that the test replays; none where the mutant is too large to keep."""
    mutant, _ = mutant_of(seed, number, whole=whole)
    if len(mutant.content) > _MOST_FILE:
        return None
    name = hashlib.sha256(f"{finding.what}/{finding.where}".encode()).hexdigest()[:10]
    try:
        # The machine that found it does not matter.
        ours, nobodys = json.dumps(socket.gethostname()), json.dumps("host")
        content = {"text": mutant.content.decode().replace(f'"host": {ours}', f'"host": {nobodys}')}
    except UnicodeDecodeError:
        content = {"base64": base64.b64encode(mutant.content).decode()}
    if mutant.beside:
        content["beside"] = base64.b64encode(mutant.beside).decode()
    told = {
        "what": finding.what,
        "where": finding.where,
        "command": list(finding.command),
        "mutant": f"{seed}/{number}",
        "kind": mutant.kind,
        "suffix": mutant.suffix,
        "how": mutant.how,
        "right": mutant.right,
        **content,
    }
    FINDINGS.mkdir(exist_ok=True)
    path = FINDINGS / f"{finding.what.replace(' ', '-')}-{mutant.kind}-{name}.json"
    path.write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n")
    return path


def _line(tally: Tally) -> str:
    counts = ", ".join(f"{count} {what}" for what, count in sorted(tally.findings.items())) or "no findings"
    return f"{tally.total} mutants, {len(tally.kinds)} kinds of findings: {counts}"


def _table(tally: Tally, seconds: float) -> Iterator[str]:
    for name, count in sorted(tally.mutants.items()):
        yield f"{count:9d}  {name}"
    yield f"{tally.total:9d}  mutants in {seconds:.0f} s, {tally.total / max(seconds, 1e-9):.0f} a second"
    yield f"{tally.peak_bytes / 1e6:9.0f}  MB at most in a process, {tally.slowest_s:.1f} s for the slowest"
    for (what, where), (number, _) in sorted(tally.kinds.items()):
        yield f"{what}: {where} (mutant {number})"
    yield _line(tally)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--mutants", type=int, default=None, help="end after so many")
    parser.add_argument("--replay", nargs="*", default=None, metavar="FILE", help="try these findings again")
    parser.add_argument(
        "--only", type=int, default=None, help="try this one mutant here, and show what it does"
    )
    given = parser.parse_args()
    seed = secrets.randbelow(1 << 32) if given.seed is None else given.seed
    if given.replay is not None:
        return max(
            [_again(Path(name)) for name in given.replay or sorted(FINDINGS.glob("*.json"))], default=0
        )
    print(f"seed {seed}", file=sys.stderr, flush=True)
    if given.only is not None:
        return _only(seed, given.only)
    begun_s = time.monotonic()
    tally = campaign(seed, seconds=given.minutes * 60, mutants=given.mutants, workers=given.workers)
    for line in _table(tally, time.monotonic() - begun_s):
        print(line)
    print(f"seed {seed}")
    return 1 if tally.kinds else 0


def kept(path: Path) -> tuple[Mutant, list[str]]:
    """The mutant in the file of a finding, and the command that showed it."""
    told = json.loads(path.read_text())
    content = told["text"].encode() if "text" in told else base64.b64decode(told["base64"])
    beside = base64.b64decode(told.get("beside", ""))
    return Mutant(told["kind"], told["suffix"], content, told["how"], told["right"], beside), told["command"]


def replayed(path: Path) -> list[Finding]:
    """Run a finding's command, and all commands that take its kind of file, again; return what they show."""
    mutant, command = kept(path)
    corpus(False)
    ours, theirs = os.pipe()
    pid = os.fork()
    if not pid:
        # A process of its own, which it may end.
        with contextlib.suppress(BaseException), tempfile.TemporaryDirectory() as folder:
            signal.alarm(int(6 * HANG_S))
            found = tried(mutant, random.Random(0), Path(folder), command)
            with os.fdopen(theirs, "wb") as stream:
                pickle.dump(found, stream)
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as stream:
        sent = stream.read()
    _, status = os.waitpid(pid, 0)
    return pickle.loads(sent) if sent else [Finding("death", f"status {status}", (), "")]


def _again(path: Path) -> int:
    begun_s = time.monotonic()
    found = replayed(path)
    print(f"== {path.name}: {len(found)} findings, {time.monotonic() - begun_s:.1f} s")
    for finding in found:
        print(f"{finding.what}: {finding.where}: {' '.join(finding.command)}\n{finding.printed[-1500:]}")
    return int(bool(found))


def _only(seed: int, number: int) -> int:
    mutant, rng = mutant_of(seed, number)
    print(
        f"{mutant.kind} {mutant.how}, {len(mutant.content)} bytes of {mutant.of.name if mutant.of else '?'}"
    )
    with tempfile.TemporaryDirectory() as folder:
        found = tried(mutant, rng, Path(folder))
    for finding in found:
        print(f"{finding.what}: {finding.where}: {' '.join(finding.command)}\n{finding.printed}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
