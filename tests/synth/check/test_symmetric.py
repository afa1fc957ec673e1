"""The checker of symmetric schedules refuses one exactly if the plain checker refuses its expansion."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from symmetric_samples import made

from probes.base.columns import bytes_of, ints
from synth.check.schedule import check
from synth.collective import Kind
from synth.schedules import SYMMETRIC, SymmetricSchedule, Timing
from synth.simulation.schedule import replay

COLUMNS = ("chunk", "link", "shift", "op")


def mutant(found: SymmetricSchedule, rng: np.random.Generator) -> SymmetricSchedule:
    """One entry of a column changed, a send dropped or doubled, or two that change places."""
    columns = {name: np.array(getattr(found, name)) for name in COLUMNS}
    rows = len(found.chunk)
    row = int(rng.integers(rows))
    what = int(rng.integers(6))
    if what == 0:
        columns["link"][row] = rng.integers(len(found.network.src))
    elif what == 1:
        columns["shift"][row] = rng.choice(found.network.shifts)
    elif what == 2:
        columns["op"][row] ^= 1
    elif what == 3:
        columns = {name: np.delete(column, row) for name, column in columns.items()}
    elif what == 4:
        doubled = int(rng.integers(rows))
        columns = {name: np.insert(column, row, column[doubled]) for name, column in columns.items()}
    else:
        other = int(rng.integers(rows))
        for column in columns.values():
            column[[row, other]] = column[[other, row]]
    chunk, link, shift = (ints(columns[name]) for name in COLUMNS[:3])
    return replace(found, chunk=chunk, link=link, shift=shift, op=bytes_of(columns["op"]), outcome=None)


@pytest.mark.parametrize("kind", SYMMETRIC)
@pytest.mark.parametrize("spec", ["torus:4x3", "dragonfly:5x4", "fat_tree:4x3", "rfs:3x2x3", "dgx-a100:2"])
def test_mutants_are_judged_as_the_plain_judge_judges_all_their_sends(spec: str, kind: Kind) -> None:
    found = made(spec, kind)
    rng = np.random.default_rng(7)
    refused = 0
    for _ in range(12):
        changed = mutant(found, rng)
        wrong = bool(check(changed))
        assert wrong == bool(check(changed.expanded()))
        refused += wrong
    assert refused >= 6


def test_times_at_which_translates_would_meet_are_refused() -> None:
    found = made("torus:4x3", "all_gather")
    timing = replay(found.quotient)
    start_s = np.array(timing.start_s)
    late = np.flatnonzero(start_s > 0)
    start_s[late[0]] = 0.0
    travel_s = found.quotient.network.travel_s(found.chunk_bytes)[found.quotient.link]
    claimed = Timing(start_s, start_s + travel_s, timing.time_s)
    assert any("links like" in finding for finding in check(found, claimed))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"chunk": ints([99] * 11)}, "chunk[0]"),
        ({"link": ints([-1] * 11)}, "link[0]"),
        ({"shift": ints([12] * 11)}, "shift[0]"),
        ({"op": bytes_of([2] * 11)}, "op[0]"),
        ({"shift": ints([0])}, "shift: expected 11"),
        ({"chunk_bytes": 0}, "chunk_bytes"),
    ],
)
def test_columns_that_make_no_sense_are_refused(wrong: dict[str, object], says: str) -> None:
    found = replace(made("torus:4x3", "all_gather"), **wrong)  # type: ignore[arg-type] # a case of the table
    assert any(says in problem for problem in check(found))


def test_another_collective_or_number_of_ranks_is_refused() -> None:
    found = made("torus:4x3", "all_gather")
    for changed, says in (
        ({"kind": "broadcast"}, "collective.kind"),
        ({"ranks": 6, "chunks": 6}, "collective.ranks"),
        ({"members": (0, 2, 3)}, "collective.kind"),
    ):
        shape = replace(found.collective, **changed)  # type: ignore[arg-type] # a case of the table
        assert any(says in problem for problem in check(replace(found, collective=shape)))
