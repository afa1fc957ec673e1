"""Faults in emulated clusters: does `ccctl accept` name them, and nothing else?

    sudo python -P benchmarks/accept_labs.py [--cases 20] [--seed 1] [--hosts 4:8] [--budget 40s]
        [--kinds egress,loss] [--rows FILE] [--keep FOLDER]

Each case is a random lab of network namespaces: hosts on one switch or in two racks, all with the same random
rate, and one fault, two or none. `ccctl accept` runs inside, and its certificate is compared with the faults.
A case is *right* if exactly the injected faults are named, each by its kind and its hosts; of a trunk, only
the kind is compared. Without a fault, the verdict must not be "undecided" either. Any other case is *open* if
the verdict is "undecided": there was too little time on a busy machine. The last lines count by kind.
``--rows`` also appends a line of JSON for each case to a file. Needs root.

Some faults last only as long as the acceptance. A flapping host sends at a tenth of its rate for a random
share of each second. A host of another version has its own /etc/os-release. All processes of a host with a
CPU quota are moved into a cgroup with a fifth to a half of a core. Slow clocks are not among the faults:
hosts of a lab share the cores of the machine.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path

CCCTL = (sys.executable, "-P", "-m", "ccctl")
# Rates at which two cores carry the traffic of eight hosts without being the limit themselves.
RATES_MBIT = (50, 100, 200)
# Two faults at once are drawn from those that hold a host back all the time.
LASTING = ("egress", "ingress", "loss", "mtu", "latency")
# A flapping host is slow for a share of each second.
FLAP_S, FLAP_LEVEL = 1.0, 0.1
# The hierarchies of cgroups, the usual period of a quota, and the time between two looks for new processes.
CGROUPS = Path("/sys/fs/cgroup")
PERIOD_US, MOVE_S = 100_000, 0.05
# A function that makes a fault of the lab of this name last as long as the context.
During = Callable[[str], AbstractContextManager[None]]


@dataclass(frozen=True)
class Injected:
    """A fault as a right answer names it: its kind and its hosts; () if the hosts do not count."""

    kind: str
    hosts: tuple[str, ...] = ()


@dataclass
class Case:
    """One lab: its description in TOML, its plan, and its faults."""

    kind: str
    name: str
    hosts: tuple[str, ...]
    lines: list[str]
    tables: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    plan: str = ""
    faults: list[Injected] = field(default_factory=list)
    during: list[During] = field(default_factory=list)

    def text(self) -> str:
        """Return the description of the lab."""
        tables = [f"[{name}]\n" + "\n".join(lines) for name, lines in self.tables.items()]
        return "\n".join([*self.lines, *tables]) + "\n"


@dataclass(frozen=True)
class NamedFault:
    """A culprit of the certificate: its kind, its part, the hosts of that part, and its severity."""

    kind: str
    part: str
    hosts: tuple[str, ...]
    severity: str = "fault"


@dataclass(frozen=True)
class Answer:
    """The verdict of an acceptance, and what it names."""

    verdict: str
    named: tuple[NamedFault, ...] = ()


@dataclass
class Count:
    """The results of the cases with one kind of fault."""

    right: int = 0
    open: int = 0
    wrong: int = 0

    @property
    def told(self) -> str:
        """The counts in words."""
        every = self.right + self.open + self.wrong
        return f"{self.right} of {every} right, {self.open} open, {self.wrong} wrong"


def main() -> None:
    """Print one line for each case, then the counts."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hosts", default="4:8", help="fewest:most hosts")
    parser.add_argument("--budget", default="40s")
    parser.add_argument("--kinds", default=",".join(FAULTS))
    parser.add_argument("--rows", help="file for a line of JSON a case")
    parser.add_argument("--keep", type=Path, help="existing folder for what each acceptance wrote")
    wanted = parser.parse_args()
    # A lab is removed also if the script is told to end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    chance = random.Random(wanted.seed)
    fewest, most = map(int, wanted.hosts.split(":"))
    kinds = wanted.kinds.split(",")
    counts: dict[str, Count] = defaultdict(Count)
    for number in range(wanted.cases):
        case = drawn(chance, kinds[number % len(kinds)], chance.randint(fewest, most))
        began_s = time.monotonic()
        kept = wanted.keep / f"{number}-{case.kind}" if wanted.keep else None
        answer = accepted(case, wanted.budget, kept)
        if answer is None:
            print(f"{number:3d} {case.kind:12s} this kernel cannot emulate it", flush=True)
            continue
        result = result_of(case, answer)
        setattr(counts[case.kind], result, getattr(counts[case.kind], result) + 1)
        names = " ".join(host for one in case.faults for host in one.hosts)
        print(
            f"{number:3d} {case.kind:12s} {names:16s} {len(case.hosts)} hosts {result:5s} "
            f"{time.monotonic() - began_s:5.0f} s  {answer}",
            flush=True,
        )
        if wanted.rows:
            row = {"number": number, "kind": case.kind, "result": result, "lab": case.text()}
            row |= {"injected": [asdict(one) for one in case.faults], **asdict(answer)}
            with Path(wanted.rows).open("a") as rows:
                rows.write(json.dumps(row) + "\n")
    for kind, count in counts.items():
        print(f"{kind:12s} {count.told}")
    every = Count(
        *(sum(getattr(one, name) for one in counts.values()) for name in ("right", "open", "wrong"))
    )
    print(f"{'all':12s} {every.told}")


def drawn(chance: random.Random, kind: str, count: int) -> Case:
    """Return a lab of ``count`` hosts with faults of ``kind``."""
    hosts = tuple(f"n{at + 1}" for at in range(count))
    rate = chance.choice(RATES_MBIT)
    name = f"acc{os.getpid()}"
    case = Case(kind, name, hosts, [f'name = "{name}"', f"hosts = {json.dumps(hosts)}"])
    case.lines.append(f'rate = "{rate}Mbit/s"')
    if kind in RACKED or chance.random() < 0.3:
        cut = count // 2
        case.lines.append(f"racks = {json.dumps([hosts[:cut], hosts[cut:]])}")
        case.lines.append(f'trunk = "{rate * min(cut, count - cut)}Mbit/s"')
    kinds = chance.sample(LASTING, 2) if kind == "two" else [kind]
    for one, bad in zip(kinds, chance.sample(hosts, len(kinds)), strict=True):
        FAULTS[one](case, chance, rate, bad)
    return case


def nothing(case: Case, chance: random.Random, rate: int, bad: str) -> None:
    """Leave the lab as it is."""


def slow(way: str) -> Callable[[Case, random.Random, int, str], None]:
    """Return a function that makes a host slow to send, or to receive."""

    def inject(case: Case, chance: random.Random, rate: int, bad: str) -> None:
        case.tables["rates"].append(f'"{bad}.{way}" = "{rate * chance.uniform(0.3, 0.75):.4g}Mbit/s"')
        case.faults.append(Injected(way, (bad,)))

    return inject


def slow_pair(case: Case, chance: random.Random, rate: int, bad: str) -> None:
    """Slow two hosts down on the way to each other."""
    other = chance.choice([host for host in case.hosts if host != bad])
    level = f"{rate * chance.uniform(0.3, 0.75):.4g}Mbit/s"
    case.tables["rates"] += [f'"{bad} -> {other}" = "{level}"', f'"{other} -> {bad}" = "{level}"']
    case.faults.append(Injected("pair", (bad, other)))


def slow_way(case: Case, chance: random.Random, rate: int, bad: str) -> None:
    """Slow one host down on the way to another."""
    other = chance.choice([host for host in case.hosts if host != bad])
    case.tables["rates"].append(f'"{bad} -> {other}" = "{rate * chance.uniform(0.3, 0.75):.4g}Mbit/s"')
    case.faults.append(Injected("one_way_pair", (bad, other)))


def slow_trunk(case: Case, chance: random.Random, rate: int, bad: str) -> None:
    """Let the uplinks carry less than one host, so that every link across shows it."""
    case.tables["rates"].append(f'trunk = "{rate * chance.uniform(0.3, 0.75):.4g}Mbit/s"')
    case.faults.append(Injected("trunk"))


def late(case: Case, chance: random.Random, rate: int, bad: str) -> None:
    """Delay all that a host sends by 1 to 5 ms."""
    case.tables["delays"].append(f'"{bad}.egress" = "{chance.uniform(1, 5):.2g}ms"')
    case.faults.append(Injected("latency", (bad,)))


def lossy(case: Case, chance: random.Random, rate: int, bad: str) -> None:
    """Lose 1 to 3 % of the packets that a host sends."""
    case.tables["losses"].append(f'"{bad}.egress" = "{chance.uniform(1, 3):.2g}%"')
    case.faults.append(Injected("loss", (bad,)))


def small_mtu(case: Case, chance: random.Random, rate: int, bad: str) -> None:
    """Let a host send small packets."""
    case.tables["mtu"].append(f'"{bad}" = 576')
    case.faults.append(Injected("mtu", (bad,)))


def flapping(case: Case, chance: random.Random, rate: int, bad: str) -> None:
    """Let a host send at a tenth of its rate for 30 to 70 % of each second."""
    share = chance.uniform(0.3, 0.7)
    case.faults.append(Injected("flapping", (bad,)))

    @contextlib.contextmanager
    def during(lab: str) -> Iterator[None]:
        with repeatedly(lambda: flap(lab, bad, rate, share)):
            yield

    case.during.append(during)


def flap(lab: str, host: str, rate: int, share: float) -> None:
    """Slow a host down for ``share`` of a second, then let it send at full rate for the rest."""
    for level, seconds in ((FLAP_LEVEL, share * FLAP_S), (1.0, (1 - share) * FLAP_S)):
        bits = round(rate * level * 1e6)
        change = f"class change dev eth0 parent 1: classid 1:1 htb rate {bits}bit ceil {bits}bit"
        command = ["tc", "-netns", f"ccctl.{lab}.{host}", *change.split(), "burst", "12k", "cburst", "12k"]
        subprocess.run([*command, "quantum", "9000"], capture_output=True, check=True)
        time.sleep(seconds)


def other_version(case: Case, chance: random.Random, rate: int, bad: str) -> None:
    """Let a host have another release of the operating system than the others.

    The second host is taken, because the first starts the ranks of all others, which would see its files.
    """
    bad = case.hosts[1] if bad == case.hosts[0] else bad
    case.faults.append(Injected("differs", (bad,)))

    @contextlib.contextmanager
    def during(lab: str) -> Iterator[None]:
        # `ip netns exec` mounts the files of this folder over those of /etc.
        file = Path(f"/etc/netns/ccctl.{lab}.{bad}/os-release")
        file.write_text('PRETTY_NAME="Debian GNU/Linux 11 (bullseye)"\n')
        try:
            yield
        finally:
            file.unlink(missing_ok=True)

    case.during.append(during)


def quota(case: Case, chance: random.Random, rate: int, bad: str) -> None:
    """Let all processes of a host have a fifth to a half of a core.

    The second host is taken, because the first starts the ranks of all others, which would share its cgroup.
    """
    bad = case.hosts[1] if bad == case.hosts[0] else bad
    cores = chance.uniform(0.2, 0.5)
    case.faults.append(Injected("quota", (bad,)))

    @contextlib.contextmanager
    def during(lab: str) -> Iterator[None]:
        first = CGROUPS / "cpu" if (CGROUPS / "cpu").is_dir() else CGROUPS
        group = first / f"ccctl.{lab}.{bad}"
        group.mkdir()
        try:
            if first == CGROUPS:
                (group / "cpu.max").write_text(f"{cores * PERIOD_US:.0f} {PERIOD_US}")
            else:
                (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
                (group / "cpu.cfs_quota_us").write_text(f"{cores * PERIOD_US:.0f}")
            with repeatedly(lambda: move(f"ccctl.{lab}.{bad}", group)):
                yield
            move(f"ccctl.{lab}.{bad}", first)
        finally:
            # A process that has just ended may stay in its group for a moment.
            for _ in range(50):
                with contextlib.suppress(OSError):
                    group.rmdir()
                    break
                time.sleep(0.1)

    case.during.append(during)


def move(namespace: str, group: Path) -> None:
    """Move all processes of a network namespace into a cgroup; later children start in it."""
    run = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True)
    for process in run.stdout.split():
        with contextlib.suppress(OSError):
            (group / "cgroup.procs").write_text(process)
    time.sleep(MOVE_S)


def miswired(case: Case, chance: random.Random, rate: int, bad: str) -> None:
    """Plan a host in another rack than it is in; links between the racks are longer than those within."""
    case.tables["delays"].append(f'trunk = "{chance.uniform(0.5, 2):.2g}ms"')
    cut = len(case.hosts) // 2
    planned = [list(case.hosts[:cut]), list(case.hosts[cut:])]
    here = 0 if bad in planned[0] else 1
    planned[here].remove(bad)
    planned[1 - here].append(bad)
    case.plan = f"racks = {json.dumps([list(filter(None, rack)) for rack in planned])}\n"
    case.faults.append(Injected("miswired", (bad,)))


FAULTS: dict[str, Callable[[Case, random.Random, int, str], None]] = {
    "none": nothing,
    "egress": slow("egress"),
    "ingress": slow("ingress"),
    "pair": slow_pair,
    "one_way_pair": slow_way,
    "trunk": slow_trunk,
    "latency": late,
    "loss": lossy,
    "mtu": small_mtu,
    "flapping": flapping,
    "version": other_version,
    "miswired": miswired,
    "quota": quota,
    "two": nothing,
}
RACKED = ("trunk", "miswired")


@contextlib.contextmanager
def repeatedly(step: Callable[[], None]) -> Iterator[None]:
    """Repeat ``step`` in a thread as long as the context lasts."""
    ended = threading.Event()

    def run() -> None:
        while not ended.is_set():
            step()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def in_lab(case: Case, words: list[str], place: Path) -> subprocess.CompletedProcess[str] | None:
    """Run a command of ccctl in the lab of a case, from ``place``; None if the kernel cannot emulate it."""
    (place / "lab.toml").write_text(case.text())
    up = subprocess.run([*CCCTL, "lab", "up", "lab.toml"], cwd=place, capture_output=True, text=True)
    if up.returncode == os.EX_UNAVAILABLE:
        return None
    if up.returncode:
        raise SystemExit(f"{case.text()}\n{up.stderr}")
    try:
        with contextlib.ExitStack() as stack:
            for during in case.during:
                stack.enter_context(during(case.name))
            command = [*CCCTL, "lab", "run", "--lab", case.name, "--", *CCCTL, *words]
            return subprocess.run(command, cwd=place, capture_output=True, text=True)
    finally:
        subprocess.run([*CCCTL, "lab", "down", "--lab", case.name], cwd=place, capture_output=True)


def accepted(case: Case, budget: str, kept: Path | None) -> Answer | None:
    """Return the answer of `ccctl accept` in the lab; None if the kernel cannot emulate the lab.

    The files of the acceptance are copied to ``kept``.
    """
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        words = ["accept", "--budget", budget, "-q", "-o", "out"]
        if case.plan:
            (place / "plan.toml").write_text(case.plan)
            words += ["--plan", "plan.toml"]
        run = in_lab(case, words, place)
        if run is None:
            return None
        certificate = place / "out" / "certificate.json"
        if not certificate.exists():
            return Answer(f"no certificate: {run.stderr[-300:]}")
        body = json.loads(certificate.read_text())["body"]
        if kept is not None:
            shutil.copytree(place / "out", kept)
    # A busy machine is no fault of the lab.
    named = (
        NamedFault(one["kind"], one["part"], tuple(one["hosts"]), one["severity"])
        for one in body["culprits"]
        if one["kind"] != "crowded"
    )
    return Answer(body["verdict"], tuple(named))


def result_of(case: Case, answer: Answer) -> str:
    """Return whether exactly the injected faults are named: "right", "open" or "wrong"."""
    left = list(answer.named)
    for fault in case.faults:
        match = next((one for one in left if is_the_fault(fault, one)), None)
        if match is None:
            break
        left.remove(match)
    else:
        # An acceptance that could not tell has not accepted a healthy cluster.
        if not left and (case.faults or answer.verdict != "undecided"):
            return "right"
    return "open" if answer.verdict == "undecided" else "wrong"


def is_the_fault(fault: Injected, told: NamedFault) -> bool:
    """Return whether a culprit is the injected fault, with severity "fault" unless it is another version."""
    if told.severity != "fault" and fault.kind != "differs":
        return False
    if fault.kind == "trunk":
        return told.kind == "trunk"
    if fault.kind == "mtu":
        return told.hosts == fault.hosts and "mtu" in told.part
    return set(fault.hosts) == set(told.hosts) and told.kind == fault.kind


if __name__ == "__main__":
    main()
