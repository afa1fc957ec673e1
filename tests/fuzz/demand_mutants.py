"""Mutants of uneven collectives, redistributions and fixed orders of sums: the checker beside the oracles.

``python -P tests/fuzz/demand_mutants.py --mutants 10000 --seed 1`` prints how many of each kind both accept
and refuse, and every mutant on which they differ. Mutant i of a seed is the same on every machine.
"""

from __future__ import annotations

import argparse
import pickle
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/helpers"), str(ROOT / "tests/fuzz")]

# The modules below are found by the paths above where this file is run as a script.
import numpy as np  # noqa: E402
from fixed_order import drawn_inputs, fixed_sum  # noqa: E402
from oracles.program import judge as judge_program  # noqa: E402
from oracles.schedule import judge as judge_schedule  # noqa: E402

from exec.program.interpreter import interpret  # noqa: E402
from exec.program.layout import Layout  # noqa: E402
from probes.base.columns import bytes_of, ints, longs  # noqa: E402
from synth import synthesize  # noqa: E402
from synth.check import check, judge  # noqa: E402
from synth.collective import UNEVEN_KINDS  # noqa: E402
from synth.compiler.lowering import lower  # noqa: E402
from synth.network import Link, Network, build  # noqa: E402
from synth.portfolio.request import Request  # noqa: E402
from synth.portfolio.uneven import uneven_request  # noqa: E402
from synth.program import INPUT, OUTPUT, Program  # noqa: E402
from synth.redistribution import MeshLayout, Moved, redistribution  # noqa: E402
from synth.schedules import Schedule  # noqa: E402

__all__ = ["Tally", "campaign"]

KINDS = ("uneven", "redistribution", "reproducible")
# Different artifacts of each kind; each takes up to a second to plan.
_SAMPLES = 12
# An oracle takes the square of the sends.
_MOST_SENDS = 120
_OUT_OF_RANGE = 1000


@dataclass
class Tally:
    """The mutants of each kind that were accepted and refused, and those on which the judges differ."""

    verdicts: Counter[tuple[str, str]] = field(default_factory=Counter)
    wrong_accepts: list[str] = field(default_factory=list)
    wrong_refuses: list[str] = field(default_factory=list)


def campaign(seed: int, mutants: int, samples: int = _SAMPLES) -> Tally:
    """Judge mutants, in turn of each kind, as schedules and as programs."""
    tally = Tally()
    for number in range(mutants):
        rng = random.Random(f"{seed}/{number}")
        kind, whole = KINDS[number % len(KINDS)], number // len(KINDS) % 2 == 0
        schedule = _sample(kind, seed, rng.randrange(samples))
        name = f"{kind} {'schedule' if whole else 'program'}"
        if whole:
            mutant, how = _mutated(rng, schedule, _CHANGES_OF_SCHEDULES)
            findings, verdict = check(mutant), judge_schedule(mutant)
        else:
            mutant, how = _mutated(rng, _compiled(schedule), _CHANGES_OF_PROGRAMS)
            findings, verdict = mutant.problems() or judge(mutant), judge_program(mutant)
        reason = verdict.reason
        if not whole and not mutant.problems() and not reason:
            reason = _other_bits(mutant)
        tally.verdicts[name, "refused" if findings else "accepted"] += 1
        told = f"mutant {number} of seed {seed}, {name}, {', '.join(how)}"
        if not findings and reason:
            tally.wrong_accepts.append(f"{told}: {reason}")
        if findings and not reason:
            tally.wrong_refuses.append(f"{told}: {findings[0]}")
    return tally


def _mutated(rng: random.Random, made: Any, changes: dict[str, Callable[..., Any]]) -> tuple[Any, list[str]]:
    """Return ``made`` with one change or more, and their names; some mutants are right."""
    before, names = pickle.dumps(made), list[str]()
    while not names or rng.random() < 0.3 or pickle.dumps(made) == before:
        names.append(rng.choice([*changes]))
        made = changes[names[-1]](rng, made)
        # A mutant that is malformed or empty is changed no further.
        if made.problems() or (isinstance(made, Schedule) and not made.sends):
            break
    return made, names


@cache
def _sample(kind: str, seed: int, number: int) -> Schedule:
    """Return a right schedule of a kind, small enough for the oracle."""
    rng = random.Random(f"sample {kind} {seed}/{number}")
    while True:
        network = _network(rng)
        found = {"uneven": _uneven, "redistribution": _redistribution, "reproducible": _reproducible}[kind](
            rng, network
        )
        if found is not None and 0 < found.sends <= _MOST_SENDS:
            return found


@cache
def _compiled(schedule: Schedule) -> Program:
    return lower(schedule)


def _network(rng: random.Random) -> Network:
    """Return all pairs behind ports, or a ring with chords, with links of different costs."""
    ranks = rng.randint(2, 5)
    if rng.random() < 0.5:
        pairs = [(a, b) for a in range(ranks) for b in range(ranks) if a != b]
        ports = rng.random() < 0.5
    else:
        pairs = [(a, (a + one) % ranks) for a in range(ranks) for one in (1, ranks - 1)]
        pairs, ports = list(dict.fromkeys(pairs)), False
    links = [
        Link(
            a,
            b,
            rng.choice((0.0, 1e-6)),
            rng.choice((1e-9, 2e-9)),
            (f"out {a}", f"in {b}") if ports else (),
        )
        for a, b in pairs
    ]
    return build("drawn", [f"h{rank}" for rank in range(ranks)], links)


def _uneven(rng: random.Random, network: Network) -> Schedule | None:
    kind = rng.choice(UNEVEN_KINDS)
    blocks = network.ranks ** (2 if kind == "all_to_all" else 1)
    sizes = [rng.choice((0, 1000, 3000, 4096, 12_000)) for _ in range(blocks)]
    if not any(sizes):
        return None
    one, size_bytes = uneven_request(kind, network.ranks, sizes, root=rng.randrange(network.ranks))
    return _planned(network, size_bytes, one)


def _redistribution(rng: random.Random, network: Network) -> Schedule | None:
    def layout() -> MeshLayout:
        ranks = rng.sample(range(network.ranks), rng.randint(1, network.ranks))
        return MeshLayout(tuple(ranks), (len(ranks),), (rng.choice((None, 0, 1)),))

    moved = [Moved((rng.randint(1, 9), rng.randint(1, 9)), 64, layout(), layout()) for _ in range(2)]
    plan = redistribution(network.ranks, moved)
    if not plan.size_bytes:
        return None
    one, size_bytes = plan.request()
    return _planned(network, size_bytes, one)


def _planned(network: Network, size_bytes: int, one: Any) -> Schedule:
    request = Request(
        network, "custom", size_bytes=size_bytes, collectives=(one,), jobs=0, listed=True, solving=False
    )
    return synthesize(request).listed


def _reproducible(rng: random.Random, network: Network) -> Schedule:
    kind: Any = rng.choice(("all_reduce", "reduce_scatter", "reduce"))
    found = synthesize(network, kind, rng.choice((4096, 40_000)), reproducible=True, jobs=0, solving=False)
    return found.listed


def _row(rng: random.Random, column: Any) -> int:
    return rng.randrange(max(1, len(column)))


def _set(column: Any, row: int, value: int) -> Any:
    """Return the column with another value at ``row``; an empty column stays empty."""
    changed = np.array(column)
    if len(changed):
        changed[row] = value
    return changed


def _taken(schedule: Schedule, rows: list[int]) -> Schedule:
    """Return the sends ``rows``, in this order; addends that are not among them are left as they were."""
    place = {row: at for at, row in enumerate(rows)}
    start, addend = [0], []
    for row in rows if len(schedule.addend_start) else ():
        low, high = schedule.addend_start[row : row + 2].tolist()
        addend += [place.get(part, part) for part in schedule.addend[low:high].tolist()]
        start.append(len(addend))
    return replace(
        schedule,
        chunk=ints(schedule.chunk[rows]),
        link=ints(schedule.link[rows]),
        op=bytes_of(schedule.op[rows]),
        stream=ints(schedule.stream[rows]) if len(schedule.stream) else schedule.stream,
        addend_start=ints(start) if len(schedule.addend_start) else schedule.addend_start,
        addend=ints(addend),
        outcome=None,
    )


def _left_out(rng: random.Random, schedule: Schedule) -> Schedule:
    rows = list(range(schedule.sends))
    del rows[_row(rng, rows)]
    return _taken(schedule, rows)


def _twice(rng: random.Random, schedule: Schedule) -> Schedule:
    rows = list(range(schedule.sends))
    rows.insert(_row(rng, rows), _row(rng, rows))
    return _taken(schedule, rows)


def _moved(rng: random.Random, schedule: Schedule) -> Schedule:
    rows = list(range(schedule.sends))
    one = rows.pop(_row(rng, rows))
    rows.insert(_row(rng, rows), one)
    return _taken(schedule, rows)


def _other_chunk(rng: random.Random, schedule: Schedule) -> Schedule:
    chunk = rng.choice([*range(schedule.collective.chunks), _OUT_OF_RANGE])
    return replace(schedule, chunk=ints(_set(schedule.chunk, _row(rng, schedule.chunk), chunk)))


def _other_link(rng: random.Random, schedule: Schedule) -> Schedule:
    link = rng.randrange(schedule.network.links)
    return replace(schedule, link=ints(_set(schedule.link, _row(rng, schedule.link), link)))


def _other_op(rng: random.Random, schedule: Schedule) -> Schedule:
    row = _row(rng, schedule.op)
    return replace(schedule, op=bytes_of(_set(schedule.op, row, 1 - int(schedule.op[row]))))


def _other_addend(rng: random.Random, schedule: Schedule) -> Schedule:
    row = _row(rng, schedule.addend)
    return replace(schedule, addend=ints(_set(schedule.addend, row, rng.randrange(-1, schedule.sends))))


def _other_range(rng: random.Random, schedule: Schedule) -> Schedule:
    row = _row(rng, schedule.addend_start)
    if not len(schedule.addend_start):
        return schedule
    value = int(schedule.addend_start[row]) + rng.choice((-1, 1))
    return replace(schedule, addend_start=ints(_set(schedule.addend_start, row, value)))


def _demand(change: Callable[[random.Random, Any], Any]) -> Callable[[random.Random, Any], Any]:
    """Return a change of the sets or blocks of a custom collective, for schedules and programs."""

    def changed(rng: random.Random, made: Any) -> Any:
        sets = made.collective.custom
        if sets is None:
            return made
        more = {"outcome": None} if isinstance(made, Schedule) else {}
        return replace(made, collective=replace(made.collective, custom=change(rng, sets)), **more)

    return changed


def _other_set(name: str) -> Callable[[random.Random, Any], Any]:
    def changed(rng: random.Random, sets: Any) -> Any:
        column = getattr(sets, name)
        group = rng.randrange(len(sets.group_start) - 1)
        return replace(sets, **{name: ints(_set(column, _row(rng, column), group))})

    return _demand(changed)


def _other_reduced(rng: random.Random, sets: Any) -> Any:
    row = _row(rng, sets.reduced)
    return replace(sets, reduced=bytes_of(_set(sets.reduced, row, 1 - int(sets.reduced[row]))))


def _other_rank(rng: random.Random, sets: Any) -> Any:
    row = _row(rng, sets.group_rank)
    value = int(sets.group_rank[row]) + rng.choice((-1, 1))
    return replace(sets, group_rank=ints(_set(sets.group_rank, row, value)))


def _other_size(rng: random.Random, sets: Any) -> Any:
    blocks = sets.blocks
    size = rng.choice((0, -1, 1, 5000))
    changed = longs(_set(blocks.size_bytes, _row(rng, blocks.size_bytes), size))
    return replace(sets, blocks=replace(blocks, size_bytes=changed))


def _other_count(rng: random.Random, sets: Any) -> Any:
    """Give a chunk of one block to another."""
    blocks, chunks = sets.blocks, np.array(sets.blocks.chunks)
    chunks[_row(rng, chunks)] -= 1
    chunks[_row(rng, chunks)] += 1
    return replace(sets, blocks=replace(blocks, chunks=ints(chunks)))


def _other_kind(rng: random.Random, sets: Any) -> Any:
    kind = rng.choice([*UNEVEN_KINDS, "custom", "all_reduce"])
    return replace(sets, blocks=replace(sets.blocks, kind=kind))


def _other_root(rng: random.Random, sets: Any) -> Any:
    root = int(sets.blocks.root) + rng.choice((-1, 1))
    return replace(sets, blocks=replace(sets.blocks, root=root))


def _other_order(rng: random.Random, made: Any) -> Any:
    order = "any" if made.collective.sum_order == "aligned" else "aligned"
    return replace(made, collective=replace(made.collective, sum_order=order))


_CHANGES_OF_DEMANDS: dict[str, Callable[..., Any]] = {
    "another source": _other_set("source"),
    "another target": _other_set("target"),
    "reduced or not": _demand(_other_reduced),
    "another rank in a set": _demand(_other_rank),
    "another size of a block": _demand(_other_size),
    "a chunk of another block": _demand(_other_count),
    "blocks of another kind": _demand(_other_kind),
    "another root": _demand(_other_root),
    "another order of sums": _other_order,
}
_CHANGES_OF_SCHEDULES: dict[str, Callable[..., Any]] = {
    "a send left out": _left_out,
    "a send twice": _twice,
    "a send elsewhere in the table": _moved,
    "another chunk": _other_chunk,
    "another link": _other_link,
    "copied or reduced": _other_op,
    "another addend": _other_addend,
    "another range of addends": _other_range,
    **_CHANGES_OF_DEMANDS,
}


def _of_column(name: str, values: Callable[[random.Random, Program], int], make: Any = ints) -> Any:
    def changed(rng: random.Random, program: Program) -> Program:
        column = getattr(program, name)
        return replace(program, **{name: make(_set(column, _row(rng, column), values(rng, program)))})

    return changed


def _slot(rng: random.Random, program: Program) -> int:
    return rng.randrange(-1, program.collective.chunks + 1)


def _peer(rng: random.Random, program: Program) -> int:
    return rng.randrange(-1, program.ranks)


def _steps_exchanged(rng: random.Random, program: Program) -> Program:
    """Exchange two steps of a threadblock; what waits for their places waits for the other one."""
    tb = _row(rng, program.tb_rank)
    rows = range(int(program.tb_start[tb]), int(program.tb_start[tb + 1]))
    if len(rows) < 2:
        return program
    one, other = rng.sample(rows, 2)
    order = np.arange(program.steps)
    order[[one, other]] = order[[other, one]]
    names = ("op", "src_buffer", "src_slot", "dst_buffer", "dst_slot", "count", "wait_tb", "wait_step")
    return replace(program, **{name: getattr(program, name)[order] for name in names})


_CHANGES_OF_PROGRAMS: dict[str, Callable[..., Any]] = {
    "another operation": _of_column("op", lambda rng, program: rng.randrange(9), bytes_of),
    "another source slot": _of_column("src_slot", _slot),
    "another slot to write": _of_column("dst_slot", _slot),
    "another buffer to read": _of_column("src_buffer", lambda rng, program: rng.randrange(3), bytes_of),
    "another buffer to write": _of_column("dst_buffer", lambda rng, program: rng.randrange(3), bytes_of),
    "another count": _of_column("count", lambda rng, program: rng.randint(1, 3)),
    "a wait left out": _of_column("wait_tb", lambda rng, program: -1),
    "a wait for another step": _of_column("wait_step", lambda rng, program: rng.randrange(3)),
    "another peer to send to": _of_column("tb_send", _peer),
    "another peer to receive from": _of_column("tb_recv", _peer),
    "steps exchanged": _steps_exchanged,
    **_CHANGES_OF_DEMANDS,
}


def _other_bits(program: Program) -> str:
    """Return how the sums of a program with a fixed order differ from the definition's; "" if they do not."""
    collective, layout = program.collective, Layout(program, 8 * program.collective.chunks)
    if collective.sum_order != "aligned":
        return ""
    elements = [layout.elements(rank, INPUT) for rank in range(program.ranks)]
    drawn = drawn_inputs(program.ranks, max(elements), "float32")
    inputs = [given[:length] for given, length in zip(drawn, elements, strict=True)]
    outputs = interpret(program, inputs)
    for chunk in np.flatnonzero(collective.reduced).tolist():
        sources = collective.sources.of(chunk).tolist()
        slots = {rank: int(collective.input_slots(rank)[chunk]) for rank in sources}
        parts = [_slot_of(layout, rank, INPUT, slots[rank], inputs[rank]) for rank in sources]
        expected = fixed_sum(parts).tobytes()
        for rank in collective.targets.of(chunk).tolist():
            slot = int(collective.output_slots(rank)[chunk])
            if _slot_of(layout, rank, OUTPUT, slot, outputs[rank]).tobytes() != expected:
                return f"rank {rank} ends with other bits in chunk {chunk}"
    return ""


def _slot_of(layout: Layout, rank: int, buffer: int, slot: int, data: Any) -> Any:
    first = layout.start(rank, buffer, slot)
    return data[first : first + layout.length(rank, buffer, slot)]


def _table(tally: Tally) -> Iterator[str]:
    for kind in dict.fromkeys(kind for kind, _ in sorted(tally.verdicts)):
        accepted, refused = (tally.verdicts[kind, end] for end in ("accepted", "refused"))
        yield f"{kind:<24}{accepted + refused:>8} mutants{accepted:>8} accepted{refused:>8} refused"
    yield from (f"wrong accept: {one}" for one in tally.wrong_accepts)
    yield from (f"wrong refuse: {one}" for one in tally.wrong_refuses)
    yield f"{len(tally.wrong_accepts)} wrong accepts, {len(tally.wrong_refuses)} wrong refuses"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--mutants", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    begun_s = time.monotonic()
    tally = campaign(given.seed, given.mutants)
    for line in _table(tally):
        print(line)
    print(f"{time.monotonic() - begun_s:.0f} s")
    return int(bool(tally.wrong_accepts or tally.wrong_refuses))


if __name__ == "__main__":
    sys.exit(main())
