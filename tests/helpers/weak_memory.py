"""The interpreter kernel in Relacy: the text that CUDA compiles, on primitives that follow the memory model.

A model is one executable for a protocol. It holds the real protocol and every mutant of it: each site that a
mutant changes chooses between the real text and that of the mutant that runs.
"""

import functools
import hashlib
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from sample_schedules import random_schedule, ring_all_reduce

from exec.cuda.kernel.encode import BLOCK, RECORD, encoded
from exec.cuda.kernel.fifo_memory import arenas
from exec.cuda.kernel.proxies import RemoteFifos
from exec.cuda.kernel.rows import DOES
from exec.cuda.kernel.source import kernels
from exec.program import expected_output
from exec.program.layout import Layout
from synth.compiler.lowering import lower
from synth.program import INPUT, OUTPUT, SCRATCH, Program

__all__ = ["COMPILER", "RELACY", "Result", "Scenario", "accesses", "explored", "model", "scenarios"]

COMPILER = shutil.which("g++")
RELACY = Path("/usr/include/relacy/relacy.hpp").exists()
HERE = Path(__file__).parent
_KEPT = Path(__file__).parents[2] / ".pytest_cache" / "weak-memory"
# The model has no floating point, and mutants leave variables unused.
_OPTIONS = ("-std=c++17", "-O1", "-w", "-U_FORTIFY_SOURCE")
# Primitives whose order and scope the model takes from their PTX.
_PRIMITIVES = (
    "acquire_system",
    "release_system",
    "acquire_device",
    "release_device",
    "load_bits",
    "store_bits",
    "load_word",
    "store_word",
    "store_line",
    "load_part",
    "store_part",
)
_PTX = re.compile(r"\b(ld|st)(?:\.(relaxed|acquire|release|volatile|weak))?(?:\.(sys|gpu|cta))?\.global")
_SCOPES = {"cta": "BLOCK", "gpu": "DEVICE_WIDE", "sys": "SYSTEM"}


def accesses(text: str) -> dict[str, tuple[str, str]]:
    """(order, scope) of each primitive by its name, read in the PTX of the kernel's text.

    A volatile access is a relaxed one of the scope of the system; one without an order is weak (PTX ISA,
    Memory Consistency Model).
    """
    found = {}
    for name in _PRIMITIVES:
        body = re.search(rf"^DEVICE \w+ {name}\(.*?^}}", text, re.MULTILINE | re.DOTALL).group()
        told = {match.groups()[1:] for match in _PTX.finditer(body)}
        assert len(told) == 1, f"{name}: {told}"
        order, scope = told.pop()
        if order == "volatile":
            found[name] = ("RELAXED", "SYSTEM")
        else:
            found[name] = ((order or "weak").upper(), _SCOPES[scope] if scope else "BLOCK")
    assert "*const_cast<const volatile T*>(at)" in text
    assert "    *at = value;\n" in text
    return found | {"load_one": ("RELAXED", "SYSTEM"), "store_one": ("WEAK", "BLOCK")}


@functools.cache
def model(wire_protocol, mutants=()):
    """The executable for a protocol with these mutants, compiled once for all that it is made of."""
    text = kernels("int32", "sum", wire_protocol)
    orders = accesses(text)
    header = "\n".join((HERE / name).read_text() for name in ("blocks_in_relacy.h", "proxies_in_relacy.h"))
    # The entry points of CUDA call the primitives that the model lacks.
    text = text[: text.index("#ifdef ELEMENT\nKERNEL")]
    text = _of_protocol(text, wire_protocol)
    for site, changes in _by_site(mutants).items():
        text, header = _with_choices(text, header, site, changes)
    chosen = _orders(orders, [mutant for mutant in mutants if mutant.kind == "access"])
    source = "\n".join((text, chosen, (HERE / "schedules_in_relacy.h").read_text()))
    made_of = "\n".join((source, header, *_OPTIONS, subprocess.getoutput(f"{COMPILER} --version")))
    kept = _KEPT / hashlib.sha256(made_of.encode()).hexdigest()
    if not kept.exists():
        _KEPT.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_KEPT) as folder:
            primitives, program = Path(folder, "primitives.h"), Path(folder, "model.cpp")
            primitives.write_text(header)
            program.write_text(source)
            command = [
                COMPILER,
                *_OPTIONS,
                f'-DCCCTL_HOST="{primitives}"',
                str(program),
                "-o",
                f"{folder}/model",
            ]
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr[:5000]
            Path(folder, "model").rename(kept)
    return kept


def _of_protocol(text, wire_protocol):
    """The text that the preprocessor leaves for a protocol: so no directive cuts a site."""
    kept, inside = [], []
    defined = {"Simple": (), "LL": ("LL",), "LL128": ("LL", "LL128")}[wire_protocol]
    for line in text.splitlines(keepends=True):
        word = line.split(None, 1)[0] if line.strip() else ""
        if word in ("#ifdef", "#ifndef", "#if"):
            ours = word != "#if" and line.split()[1] in ("LL", "LL128")
            inside.append((word == "#ifdef") == (line.split()[1] in defined) if ours else None)
        elif word == "#else" and inside[-1] is not None:
            inside[-1] = not inside[-1]
            continue
        elif word == "#endif" and inside.pop() is not None:
            continue
        if False not in inside and (word not in ("#ifdef", "#ifndef") or inside[-1] is None):
            kept.append(line)
    return "".join(kept)


def _by_site(mutants):
    found = {}
    # Sites that only get something before them stay whole for those that are replaced.
    for mutant in sorted(mutants, key=lambda mutant: mutant.kind not in ("before", "without")):
        if mutant.kind != "access":
            found.setdefault((mutant.site, mutant.kind in ("before", "without")), []).append(mutant)
    return {site: changes for (site, _), changes in found.items()}


def _with_choices(text, header, site, changes):
    inside = text.count(site)
    assert inside + header.count(site) == 1, f"{inside + header.count(site)} places in the source: {site}"
    choice = f"({site})" if changes[0].kind == "expression" else f"{{ {site} }}"
    if changes[0].kind in ("before", "without"):
        choice = site
    # Before what leaves the site's first statement out comes what is put before it.
    for mutant in sorted(changes, key=lambda mutant: mutant.kind == "before"):
        match mutant.kind:
            case "expression":
                choice = f"(mutant == {mutant.number} ? ({mutant.change}) : {choice})"
            case "statement":
                choice = f"if (mutant == {mutant.number}) {{ {mutant.change} }} else {choice}"
            case "before":
                choice = f"if (mutant == {mutant.number}) {{ {mutant.change} }}\n{choice}"
            case "without":
                choice = f"if (mutant != {mutant.number}) {choice}"
    return (text.replace(site, choice), header) if inside else (text, header.replace(site, choice))


def _orders(orders, changes):
    lines = [
        f"    if (mutant == {each.number} && primitive == {each.site.upper()}) return {{{each.change}}};"
        for each in changes
    ]
    cases = [
        f"        case {name.upper()}: return {{{order}, {scope}}};"
        for name, (order, scope) in orders.items()
    ]
    return "\n".join(
        (
            "Access access_of(Primitive primitive) {",
            *lines,
            "    switch (primitive) {",
            *cases,
            "    }",
            "    return {};",
            "}",
        )
    )


@dataclass(frozen=True)
class Scenario:
    """A program on few threads.

    ``wraps``: the 2^32nd message is among those sent. ``impatient``: the time of a threadblock runs out at
    any poll. ``lost``: a rank sends nothing, and the one that waits for it gives up. ``apart``: each rank is
    on a host of its own, and proxies carry the messages.
    """

    name: str
    program: Program
    threads: int
    count: int
    tile_bytes: int = 32
    slice_bytes: int = 16
    depth: int = 2
    spare_slots: int = 0
    launches: int = 2
    in_place: bool = False
    wraps: bool = False
    impatient: bool = False
    lost: bool = False
    apart: bool = False

    def numbers(self, wire_protocol):
        """The scenario as the model reads it: lists of integers, each behind its length."""
        layout = Layout(self.program, self.count)
        table = encoded(
            layout,
            4,
            tile_bytes=self.tile_bytes,
            slice_bytes=self.slice_bytes,
            depth=self.depth,
            spare_slots=self.spare_slots,
            wire_protocol=wire_protocol,
        )
        ranks = range(self.program.ranks)
        given = [expected_output.given(layout, rank, np.dtype("int32"), "sum") for rank in ranks]
        right = [expected_output.expected(layout, rank, np.dtype("int32"), "sum") for rank in ranks]
        sizes = [layout.elements(rank, buffer) for rank in ranks for buffer in (INPUT, OUTPUT, SCRATCH)]
        # The first elements of input and output, and the elements of both, where they share memory.
        shared = []
        for rank in ranks if self.in_place else ():
            total, where_in, where_out = layout.in_place(rank)
            shared += [where_in.start, where_out.start, total]
        steps, first, lost, record = table.steps.copy(), 0, 0, []
        if self.wraps:
            each = table.tiles * int(table.blocks[:, BLOCK.index("sends")].max())
            # The first of the two launches ends before the 2^32nd message, the second one sends it.
            first = (1 << 32) // each - 1
        if self.lost:
            lost, record = _lose(table, steps)
        head = (
            len(ranks), len(table.blocks), self.threads, table.tile, table.tiles, table.slices,
            table.place_bytes, self.launches, first, int(self.impatient), lost, int(self.apart),
        )  # fmt: skip
        parts = (
            head,
            table.blocks,
            steps,
            table.more,
            table.fifos,
            table.room,
            sizes,
            shared,
            _joined(given),
            _joined(right),
        )
        spans = _spans(table, ranks) if self.apart else []
        return [np.ravel(np.asarray(part, dtype=np.int64)).tolist() for part in (*parts, record, spans)]


def _spans(table, ranks):
    """(first byte, bytes) of each slice of a launch; a FIFO's numbers follow their count."""
    hosts = list(ranks)
    ends = RemoteFifos(
        table, arenas(table, hosts), ranks, hosts, hosts, partial(np.zeros, dtype=np.uint8)
    ).ends
    numbers = {end.fifo: np.ravel(end.spans).tolist() for end in ends if end.outgoing}
    assert len(numbers) == len(table.room)
    return [number for fifo in sorted(numbers) for number in (len(numbers[fifo]), *numbers[fifo])]


def _joined(arrays):
    return np.concatenate(arrays)


def _lose(table, steps):
    """Let the first sender send nothing; (1 + the block that waits, its record as column and value)."""
    sender = int(np.flatnonzero(table.fifos[:, 0] >= 0)[0])
    receiver = int(np.flatnonzero(table.fifos[:, 1] == table.fifos[sender, 0])[0])
    first, count = (int(table.blocks[sender, BLOCK.index(name)]) for name in ("first", "steps"))
    rows = range(first, first + count)
    steps[[row for row in rows if steps[row, 0] & DOES["sends"]], 0] = 0
    told = {
        "reason": 1,
        "peer": int(table.blocks[sender, BLOCK.index("rank")]),
        "seen": 0,
        "wanted": 1,
        "tile": 0,
    }
    return receiver + 1, [number for name, value in told.items() for number in (RECORD.index(name), value)]


def _scenarios():
    broadcast = lower(random_schedule("broadcast", 2, 1, 0))
    three = lower(random_schedule("broadcast", 2, 3, 0))
    ring = lower(ring_all_reduce(2))
    waits = lower(random_schedule("all_reduce", 2, 2, 5))
    both_wait = lower(random_schedule("all_reduce", 2, 2, 5), fuse=False)
    forwards = lower(ring_all_reduce(2), fuse=False)
    yield Scenario("fifo", broadcast, 3, 20)
    yield Scenario("ring", ring, 3, 22)
    yield Scenario("steps", waits, 2, 22)
    yield Scenario("steps of two ranks", both_wait, 2, 22)
    yield Scenario("in place", both_wait, 2, 22, in_place=True)
    yield Scenario("forwarding in place", forwards, 2, 22, in_place=True)
    yield Scenario("one slice", ring, 3, 22, slice_bytes=1024)
    yield Scenario("one slice, steps", both_wait, 2, 22, slice_bytes=1024)
    # Whole lines of LL128, and one that is filled in part.
    yield Scenario("long messages", broadcast, 2, 80, tile_bytes=256)
    yield Scenario("long steps", both_wait, 2, 140, tile_bytes=256, launches=1)
    yield Scenario("one thread", broadcast, 1, 20)
    # The second launch uses the place of the first one again.
    yield Scenario("one place", broadcast, 1, 2, tile_bytes=16, depth=1)
    # Four slots, whose release is published for two messages at once; later launches use them again.
    spare = {"tile_bytes": 64, "slice_bytes": 1024, "launches": 3}
    yield Scenario("spare slots", three, 2, 12, depth=1, spare_slots=3, **spare)
    yield Scenario("spare slots of a ring", ring, 2, 8, spare_slots=2, **spare)
    yield Scenario("wrap", broadcast, 3, 20, wraps=True)
    yield Scenario("impatient", ring, 3, 22, impatient=True, launches=1)
    yield Scenario("impatient steps", waits, 2, 22, impatient=True, launches=1)
    yield Scenario("lost", broadcast, 3, 20, lost=True, launches=1)
    yield Scenario("hosts", broadcast, 2, 20, apart=True)
    yield Scenario("ring of hosts", ring, 2, 22, apart=True)
    yield Scenario("one place of hosts", broadcast, 1, 2, tile_bytes=16, depth=1, apart=True)
    yield Scenario("spare slots of hosts", three, 1, 12, depth=1, spare_slots=3, apart=True, **spare)
    yield Scenario("wrap of hosts", broadcast, 2, 20, wraps=True, apart=True)


_SCENARIOS = {scenario.name: scenario for scenario in _scenarios()}


def scenarios(wire_protocol):
    """A protocol's scenarios by their names; only Simple has messages between hosts."""
    simple = wire_protocol == "Simple"
    return {name: scenario for name, scenario in _SCENARIOS.items() if simple or not scenario.apart}


@functools.cache
def _text(name, wire_protocol):
    parts = _SCENARIOS[name].numbers(wire_protocol)
    return "\n".join(f"{len(part)} {' '.join(map(str, part))}" for part in parts)


@dataclass(frozen=True)
class Result:
    """``schedules`` were run; the last one ended as ``outcome`` says ("SUCCESS: -": all are right)."""

    schedules: int
    outcome: str

    @property
    def right(self):
        """Whether every schedule was right."""
        return self.outcome.startswith("SUCCESS")


def explored(executable, wire_protocol, scenario, *, mutant=0, search="random", iterations=1000):
    """Run a scenario's schedules until one is wrong or ``iterations`` are over (``search`` "random")."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(_text(scenario.name, wire_protocol))
        file.flush()
        command = [str(executable), file.name, str(mutant), search, str(iterations)]
        done = subprocess.run(command, capture_output=True, text=True)
    last = done.stdout.splitlines()[-1:] or [f"result 0 CRASH: exit {done.returncode}, {done.stderr[-300:]}"]
    _, schedules, outcome = last[0].split(" ", 2)
    return Result(int(schedules), outcome)
