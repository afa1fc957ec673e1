"""Work for hours with random networks, sizes, ranks, labs and signals: does anything grow or stay behind?

Each round takes a random network and collective through the installed command: synth, verify, compile,
simulate, then bench or profile on this host, or in an emulated cluster of a few hosts. In a quarter of the
rounds a SIGINT, SIGTERM or SIGKILL strikes the command, its mpirun or one of its ranks at a random moment.
Between the rounds one process that lives as long as the soak calls the library on other random cases.

The soak runs in separate namespaces (processes, mounts, SysV memory), with its own /tmp, /run, /dev/shm, home
and cache. So everything found there was left by the rounds. Counted after each round: processes, /dev/shm,
/tmp, /run/ccctl and its labs in /etc/netns, network namespaces, .part files, SysV segments, the cache of
compiled loops, and the memory, descriptors and threads of the process that lives on.

A figure is flat if its Theil-Sen slope (the median of the slopes between all pairs of samples) over the last
three quarters of the soak, times their duration, is at most its tolerance: 5 % of the median, at least 8 MiB
of memory and 2 of counted things. The exit status is 1 if a figure is not flat, or if a round left something,
ended with an undocumented status, showed a traceback or hung.

    python -P benchmarks/soak.py [--minutes 120] [--seed 0] [--no-lab]

Needs root, for the namespaces and the lab.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import random
import resource
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from scipy.stats import theilslopes

CCCTL = Path(sys.executable).with_name("ccctl")
INSIDE = "CCCTL_SOAK_INSIDE"
OURS = ("/dev/shm", "/run", "/tmp")
# In the /tmp of the soak's own mount namespace.
HOME = Path(tempfile.gettempdir(), "soak")
OUT = HOME / "out"
# /etc/netns is the machine's: there only this tells what is ours.
LABS = f"soak{secrets.token_hex(3)}x"
DOCUMENTED = {0, 1, 2, 65, 66, 69, 73, 75, 78, 124, 130, 143}
COLLECTIVES = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "reduce",
    "scatter",
    "gather",
    "all_to_all",
    "all_to_next",
)
# Nothing here takes so long, even on a machine that others keep busy; after a signal it takes far less.
HANG_S = 400.0
HANG_AFTER_SIGNAL_S = 90.0
# A rank whose command was killed notices at its next heartbeat; mpirun then gathers the others.
SETTLE_S = 20.0
# The next writer of a file removes the part file of a killed writer at this age.
PART_S = 75.0
GENTLE = 10
WARM = 0.25
TOLERANCE = 0.05
LEAST = {"MiB": 8.0, "": 2.0}


@dataclass(frozen=True)
class Strike:
    """A signal for the command, its mpirun or one of its ranks, after this share of its usual time."""

    victim: str
    signal: signal.Signals
    share: float


@dataclass
class Findings:
    """Failures in order, and the amount of work done."""

    wrong: list[str] = field(default_factory=list)
    commands: int = 0
    signals: int = 0
    statuses: dict[int, int] = field(default_factory=dict)

    def add(self, what: str) -> None:
        """Keep and print one finding."""
        self.wrong.append(what)
        print(f"WRONG: {what}", flush=True)


class Commands:
    """Commands: runs the installed command and judges how it ended."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._usual_s: dict[str, float] = {}

    def run(self, arguments: Sequence[object], strike: Strike | None = None) -> bool:
        """Run ``ccctl`` with ``arguments``; return whether it ended with status 0."""
        words = [str(CCCTL), *map(str, arguments)]
        told = "ccctl " + " ".join(words[1:])
        kind = next((word for word in ("profile", "bench") if word in words), words[1])
        self._findings.commands += 1
        began_s = time.monotonic()
        log = HOME / "log"
        with log.open("wb") as stream:
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream)
        struck = False
        if strike is not None:
            told += f"  [{strike.signal.name} to {strike.victim} at {strike.share:.2f}]"
            struck = _strike(process, strike, began_s + strike.share * self._usual_s.get(kind, 4.0))
            self._findings.signals += struck
        status = _ended(process, HANG_AFTER_SIGNAL_S if struck else HANG_S)
        said = log.read_text(errors="replace")
        if not struck and status == 0:
            self._usual_s[kind] = time.monotonic() - began_s
        self._judge(told, status, said, strike if struck else None)
        return status == 0

    def _judge(self, told: str, status: int | None, said: str, strike: Strike | None) -> None:
        end = "\n    ".join(["", *said.splitlines()[-30:]])
        if status is None:
            self._findings.add(f"hung: {told}{end}")
            return
        self._findings.statuses[status] = self._findings.statuses.get(status, 0) + 1
        # A process that a signal ended shows to a shell as 128 and the signal.
        known = status if status >= 0 else 128 - status
        if strike is not None and strike.signal == signal.SIGKILL and strike.victim == "command":
            known = 0 if known == 128 + signal.SIGKILL else known
        if known not in DOCUMENTED:
            self._findings.add(f"status {status}: {told}{end}")
        elif "Traceback" in said:
            self._findings.add(f"a traceback, status {status}: {told}{end}")
        elif strike is None and status != 0:
            self._findings.add(f"status {status} without a signal: {told}{end}")


def _ended(process: subprocess.Popen[bytes], within_s: float) -> int | None:
    try:
        return process.wait(within_s)
    except subprocess.TimeoutExpired:
        for one in _descendants(process.pid):
            print(f"    still there: {_told(one)}", flush=True)
        process.kill()
        process.wait()
        return None


def _strike(process: subprocess.Popen[bytes], strike: Strike, when_s: float) -> bool:
    """Send the signal at its time; return whether its victim existed."""
    while time.monotonic() < when_s and process.poll() is None:
        time.sleep(0.05)
    deadline_s = time.monotonic() + 20
    while process.poll() is None and time.monotonic() < deadline_s:
        victims = _victims(process, strike.victim)
        if victims:
            with suppress(ProcessLookupError):
                os.kill(random.choice(victims), strike.signal)
                return True
        time.sleep(0.05)
    return False


def _victims(process: subprocess.Popen[bytes], victim: str) -> list[int]:
    if victim == "command":
        return [process.pid]
    found = []
    for one in _descendants(process.pid):
        with suppress(psutil.Error):
            words = one.cmdline()
            name = Path(words[0]).name if words else ""
            if "exec.launcher.worker" in words and name.startswith("python") and victim == "rank":
                found.append(one.pid)
            if victim == "mpirun" and name in ("mpirun", "prterun", "mpiexec"):
                found.append(one.pid)
    return found


def _descendants(pid: int) -> list[psutil.Process]:
    with suppress(psutil.Error):
        return psutil.Process(pid).children(recursive=True)
    return []


def _told(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return f"{process.pid} {process.status()} {' '.join(process.cmdline())[:120]}"
    return f"{process.pid}, gone"


def random_network(chance: random.Random, most: int) -> tuple[str, int]:
    """Return a network of a random family with at most ``most`` ranks, and how many it has."""
    a, b = chance.randint(2, max(2, most // 2)), 2
    choices = [
        (f"ring:{chance.randint(2, most)}", 0),
        (f"switch:{chance.randint(2, most)}", 0),
        (f"fully_connected:{chance.randint(2, min(most, 16))}", 0),
        (f"mesh:{a}x{b}", a * b),
        (f"torus:{a}x{b}", a * b),
        (f"hypercube:{2 ** chance.randint(1, most.bit_length() - 1)}", 0),
    ]
    if most >= 8:
        choices += [("rfs:2x2x2", 8), ("switch_switch:4x2", 8), ("dragonfly:3x2", 6), ("dgx-a100:1", 8)]
    spec, ranks = chance.choice(choices)
    return spec, ranks or int(spec.partition(":")[2])


def random_strike(chance: random.Random, victims: Sequence[str]) -> Strike:
    """Return a signal for one of ``victims``, at a random moment of its life."""
    how = chance.choice((signal.SIGINT, signal.SIGTERM, signal.SIGKILL))
    return Strike(chance.choice(victims), how, chance.uniform(0, 1.1))


class Round:
    """One network and collective from synthesis to the ranks."""

    def __init__(self, number: int, chance: random.Random, commands: Commands, lab: bool) -> None:
        kinds = ("bench", "bench", "profile", "lab", "lab", "sweep") if lab else ("bench", "profile", "sweep")
        self._chance, self._commands = chance, commands
        self.kind = chance.choice(kinds)
        self._name = f"{LABS}{number}"
        # A round is struck at most once: what comes after shows whether the next command still works.
        self._struck_at = chance.randrange(6) if chance.random() < 0.3 else -1
        self._step = 0

    def run(self) -> None:
        """Run every command of the round; a command that got a signal ends it."""
        most = 4 if self.kind in ("bench", "lab") else 24
        spec, ranks = random_network(self._chance, most)
        kind = self._chance.choice(COLLECTIVES)
        schedule, program = OUT / "schedule.json", OUT / self._chance.choice(("program.json", "program.xml"))
        size = self._chance.choice(("4K", "64K", "1M", "3M", "16M", "123456"))
        wanted: list[object] = ["--collective", kind, "--size", size]
        if self.kind == "sweep":
            wanted = ["--collective", kind, "--sizes", "4K:1M", "-f", 8]
        if spec.startswith("dgx"):
            rates: list[object] = []
        else:
            bandwidth = self._chance.choice((1, 10, 50))
            rates = ["--alpha", f"{self._chance.choice((0.5, 2, 20))}us", "--bandwidth", f"{bandwidth}GB/s"]
        seed = self._chance.randrange(1000)
        built = [
            ("synth", "--network", spec, *rates, *wanted, "--seed", seed, "-o", schedule),
            ("verify", schedule),
            ("simulate", schedule),
        ]
        if self.kind != "sweep":
            built.insert(2, ("compile", schedule, "-o", program))
            built.append(("verify", program))
        if not all(self._run(command, ("command",)) for command in built):
            return
        if self.kind == "lab":
            self._lab(ranks, schedule, program)
        elif self.kind == "bench":
            artifact = self._chance.choice((schedule, program))
            self._run(("bench", artifact, *self._sizes("1M"), "-o", OUT / "report.json"), RUNNING)
        elif self.kind == "profile":
            wanted = ["-n", self._chance.randint(2, 4), "--quick", "-o", OUT / "profile.json"]
            self._run(("profile", *wanted), RUNNING)

    def _sizes(self, most: str) -> tuple[object, ...]:
        begin = self._chance.choice(("8", "1K", "33K"))
        factor, runs = self._chance.choice((4, 16)), self._chance.choice((3, 40))
        return "-b", begin, "-e", most, "-f", factor, "--iters", runs

    def _lab(self, ranks: int, schedule: Path, program: Path) -> None:
        hosts = ranks if ranks < 4 else self._chance.choice((2, 4))
        described = OUT / "lab.toml"
        rate = self._chance.choice((50, 200))
        described.write_text(
            f'name = "{self._name}"\nhosts = "h[1-{hosts}]"\n'
            f'slots = {ranks // hosts}\nrate = "{rate}Mbit/s"\n'
        )
        try:
            if not self._run(("lab", "up", described), ("command",)):
                return
            inside = ("lab", "run", "--lab", self._name, "--", str(CCCTL))
            if self._chance.random() < 0.5:
                self._run((*inside, "profile", "--quick", "-o", OUT / "profile.json"), RUNNING)
            else:
                artifact = self._chance.choice((schedule, program))
                self._run((*inside, "bench", artifact, *self._sizes("64K")), RUNNING)
        finally:
            # Interrupted or not: this is what an operator would do next.
            self._commands.run(("lab", "down", "--lab", self._name))

    def _run(self, command: Sequence[object], victims: Sequence[str]) -> bool:
        # Steps that start ranks come last and take longest: strike them as often as all others together.
        here = self._step == self._struck_at or (self._struck_at >= 3 and victims == RUNNING)
        self._step += 1
        return self._commands.run(command, random_strike(self._chance, victims) if here else None)


RUNNING = ("command", "command", "mpirun", "rank", "rank")


class Resident:
    """The process that lives as long as the soak and calls the library in between."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__, "--resident"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def work(self, seed: int) -> dict[str, float]:
        """Run a batch there; return its memory, descriptors and threads after it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{seed}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the process that calls the library ended with status {self._process.wait()}")
        found: dict[str, float] = json.loads(line)
        return found

    def end(self) -> int:
        """End the process; return its exit status."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait(60)


def serve() -> None:
    """Call the library as the resident: a batch of calls for each line read, then a line of figures."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    own = psutil.Process()
    for line in sys.stdin:
        chance = random.Random(int(line))
        for _ in range(4):
            _call_the_library(chance)
        gc.collect()
        if trim is not None:
            trim(0)
        figures = {"rss": own.memory_info().rss / 2**20, "fds": own.num_fds(), "threads": own.num_threads()}
        print(json.dumps({**figures, "objects": len(gc.get_objects())}), flush=True)


def _call_the_library(chance: random.Random) -> None:
    import numpy as np

    from exec.program.interpreter import interpret
    from probes.base.errors import UsageError
    from synth import Request, synthesize
    from synth.bounds.lower_bounds import bounds
    from synth.check.program import judge
    from synth.check.schedule import check
    from synth.compiler.lowering import lower
    from synth.networks.families import family
    from synth.simulation.program import simulate_program
    from synth.simulation.schedule import replay

    spec, _ranks = random_network(chance, 12)
    while spec.startswith("dgx"):
        spec, _ranks = random_network(chance, 12)
    network = family(spec, [chance.choice((5e-7, 2e-5))], [chance.choice((1e9, 5e10))])
    kind: Any = chance.choice(COLLECTIVES)
    request = Request(
        network, kind, chance.choice((1 << 12, 1 << 16, 1 << 20, 123456)), seed=chance.randrange(99)
    )
    try:
        schedule = synthesize(request).schedule
    except UsageError:
        return
    assert not check(schedule) and replay(schedule).time_s > 0
    assert bounds(network, schedule.collective, schedule.chunk_bytes)
    program = lower(schedule)
    assert not judge(program)
    assert simulate_program(program, network, schedule.chunk_bytes).time_s > 0
    each = 2 * program.collective.chunks
    inputs = [np.ones(each, np.float32) for _ in range(program.ranks)]
    with suppress(UsageError):  # how long an input is depends on the collective
        interpret(program, inputs)


def left_behind(known: set[int]) -> dict[str, list[str]]:
    """Return the things that no command needs any more, by the name of their column."""
    return {
        "processes": [_told(one) for one in psutil.process_iter() if one.pid not in known],
        "shm": _below(Path("/dev/shm")),
        "tmp": [name for name in _below(Path("/tmp")) if not name.startswith(str(HOME))],
        "netns": _below(Path("/run/netns")),
        "labs": [*_below(Path("/run/ccctl/labs")), *map(str, Path("/etc/netns").glob(f"ccctl.{LABS}*"))],
        "ipc": [
            f"{kind}: {line.split()[1]}"
            for kind in ("shm", "sem", "msg")
            for line in Path(f"/proc/sysvipc/{kind}").read_text().splitlines()[1:]
        ],
    }


def _below(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.iterdir()) if folder.is_dir() else []


def stale_parts() -> list[str]:
    """Return unfinished files that the next writer of the same file should have removed, and did not."""
    stale = []
    for part in OUT.glob(".*.part"):
        target = OUT / ".".join(part.name.split(".")[1:-2])
        if target.exists() and target.stat().st_mtime > part.stat().st_mtime + PART_S:
            stale.append(str(part))
    return stale


def settled(known: set[int]) -> dict[str, list[str]]:
    """Return the things left behind after all had time to end."""
    deadline_s = time.monotonic() + SETTLE_S
    while any((left := left_behind(known)).values()) and time.monotonic() < deadline_s:
        time.sleep(0.2)
    return left


def clear(left: dict[str, list[str]]) -> None:
    """Remove the leftovers of a round, so that they are reported once."""
    for told in left["processes"]:
        with suppress(ProcessLookupError, ValueError):
            os.kill(int(told.split()[0]), signal.SIGKILL)
    for name in left["netns"]:
        subprocess.run(["ip", "netns", "delete", Path(name).name], check=False)
    for name in (*left["shm"], *left["tmp"], *left["labs"]):
        if Path(name).is_dir():
            shutil.rmtree(name, ignore_errors=True)
        else:
            Path(name).unlink(missing_ok=True)


def cache_size() -> tuple[float, int]:
    """Return (MiB, files) of every cache below the soak's home."""
    files = [path for path in (HOME / "cache").rglob("*") if path.is_file()]
    return sum(path.stat().st_size for path in files) / 2**20, len(files)


COLUMNS = {
    "processes": "",
    "shm": "",
    "tmp": "",
    "netns": "",
    "labs": "",
    "ipc": "",
    "parts": "",
    "cache MiB": "MiB",
    "cache files": "",
    "rss MiB": "MiB",
    "fds": "",
    "threads": "",
    "objects": "",
    "own fds": "",
}


def flat(moments_s: Sequence[float], values: Sequence[float], unit: str) -> tuple[bool, float]:
    """Return whether a figure is flat by the rule above, and its growth."""
    warm_s = moments_s[0] + WARM * (moments_s[-1] - moments_s[0])
    kept = [(moment, value) for moment, value in zip(moments_s, values, strict=True) if moment >= warm_s]
    if len(kept) < 3:
        return True, 0.0
    moments, later = zip(*kept, strict=True)
    grew = float(theilslopes(later, moments)[0]) * (moments[-1] - moments[0])
    return grew <= max(TOLERANCE * median(later), LEAST[unit]), grew


def soak(minutes: float, seed: int, lab: bool) -> bool:
    """Run rounds until the time is up, and print the figures; return whether all is well."""
    OUT.mkdir(parents=True)
    findings = Findings()
    commands, resident = Commands(findings), Resident()
    began_s = told_s = time.monotonic()
    samples: list[tuple[float, dict[str, float]]] = []
    number = 0
    print(
        f"{'minute':>7} {'rounds':>6} {'signals':>7} " + " ".join(f"{name:>11}" for name in COLUMNS),
        flush=True,
    )
    while time.monotonic() - began_s < 60 * minutes or number < 3:
        chance = random.Random(f"{seed}/{number}")
        Round(number, chance, commands, lab).run()
        figures = resident.work(chance.randrange(1 << 30))
        known = {1, os.getpid(), resident.pid}
        left = settled(known)
        for column, names in left.items():
            if names:
                findings.add(f"round {number} left {column}: {'; '.join(names[:5])}")
        clear(left)
        for part in stale_parts():
            findings.add(f"round {number} left {part}")
            Path(part).unlink()
        samples.append((time.monotonic() - began_s, _sample(left, figures)))
        number += 1
        if time.monotonic() - told_s > 180 or number == 1:
            told_s = time.monotonic()
            _print_row(samples[-1], number, findings)
    _print_row(samples[-1], number, findings)
    if status := resident.end():
        findings.add(f"the process that called the library ended with status {status}")
    return _verdict(samples, number, findings)


def _sample(left: dict[str, list[str]], figures: dict[str, float]) -> dict[str, float]:
    megabytes, files = cache_size()
    sample: dict[str, float] = {column: len(names) for column, names in left.items()}
    sample["parts"] = len(list(OUT.glob(".*.part")))
    sample |= {"cache MiB": megabytes, "cache files": files, "rss MiB": figures["rss"]}
    sample |= {name: figures[name] for name in ("fds", "threads", "objects")}
    return {**sample, "own fds": psutil.Process().num_fds()}


def _print_row(sample: tuple[float, dict[str, float]], rounds: int, findings: Findings) -> None:
    moment_s, values = sample
    cells = " ".join(f"{values[name]:11.{1 if unit else 0}f}" for name, unit in COLUMNS.items())
    print(f"{moment_s / 60:7.1f} {rounds:6} {findings.signals:7} {cells}", flush=True)


def _verdict(samples: Sequence[tuple[float, dict[str, float]]], rounds: int, findings: Findings) -> bool:
    moments_s = [moment_s for moment_s, _ in samples]
    print(f"\n{'':>12} {'first':>10} {'median':>10} {'last':>10} {'max':>10} {'growth':>10}")
    for name, unit in COLUMNS.items():
        values = [sample[name] for _, sample in samples]
        level, grew = flat(moments_s, values, unit)
        row = " ".join(
            f"{v:10.{1 if unit else 0}f}" for v in (values[0], median(values), values[-1], max(values))
        )
        print(f"{name:>12} {row} {grew:10.2f} {'flat' if level else 'GROWS'}")
        if not level:
            findings.wrong.append(f"{name} grows: by {grew:.1f} after the first quarter")
    statuses = ", ".join(f"{status}: {count}" for status, count in sorted(findings.statuses.items()))
    print(f"\n{rounds} rounds, {findings.commands} commands, {findings.signals} signals; statuses {statuses}")
    for what in findings.wrong:
        print(f"WRONG: {what.splitlines()[0]}")
    print("verdict: flat" if not findings.wrong else f"verdict: {len(findings.wrong)} findings")
    return not findings.wrong


def enter_namespaces(arguments: Sequence[str]) -> None:
    """Start this program again in new namespaces, with only its own processes and files; never return."""
    if os.geteuid() != 0:
        raise SystemExit("the soak needs root: it makes namespaces for itself and for the labs")
    needed = [Path(sys.prefix), Path(__file__)]
    hidden = [path for path in needed if any(path.resolve().is_relative_to(place) for place in OURS)]
    if hidden:
        raise SystemExit(f"{hidden[0]} lies in a folder that the soak replaces by its own: {', '.join(OURS)}")
    mounts = "".join(f"mount -t tmpfs tmpfs {place} && " for place in OURS)
    # The shell stays as the first process and takes in what others leave to it.
    script = f'{mounts}rm -rf /run/mount && mkdir {HOME} && "$@"; exit $?'
    foreign = ("CCCTL_", "OMPI_", "PMIX_", "PRTE_")
    own = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    own |= {INSIDE: "1", "HOME": str(HOME), "XDG_CACHE_HOME": str(HOME / "cache")}
    own |= {"XDG_CONFIG_HOME": str(HOME / "config"), "XDG_STATE_HOME": str(HOME / "state")}
    own.pop("TMPDIR", None)
    apart = ["unshare", "--mount", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc"]
    again = [sys.executable, "-P", str(Path(__file__).resolve()), *arguments]
    os.execvpe("unshare", [*apart, "sh", "-c", script, "soak", *again], own)


def main() -> None:
    """Run the soak, or the resident process."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--minutes", type=float, default=120.0)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--no-lab", action="store_true", help="only ranks on this host")
    options.add_argument("--resident", action="store_true", help=argparse.SUPPRESS)
    asked = options.parse_args()
    if asked.resident:
        serve()
        return
    if INSIDE not in os.environ:
        enter_namespaces(sys.argv[1:])
    if not all(Path(place).is_mount() for place in OURS):
        raise SystemExit(f"{INSIDE} is set, but {', '.join(OURS)} are the machine's")
    # A shell lets what it starts in the background ignore Ctrl-C, and so would all that we start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.nice(max(0, GENTLE - os.nice(0)))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    print(f"seed {asked.seed}, {asked.minutes:g} minutes", flush=True)
    sys.exit(not soak(asked.minutes, asked.seed, not asked.no_lab))


if __name__ == "__main__":
    main()
