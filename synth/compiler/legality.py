"""The rules of each form of a program, checked between the passes.

A broken rule is a bug in the previous pass, never an error of the program's author, so it is an assertion.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from probes.base import Indices, Mask
from synth.check import shape
from synth.compiler.chunk_dag import ASSIGN, LOAD_REDUCE, REDUCE, STORE, ChunkDag
from synth.compiler.instruction_dag import InstructionDag
from synth.program import OPS, Program

__all__ = ["FORMS", "require"]

_SWITCHED = ("nop", "signal", "wait", "glre", "gstore")
_PLAIN = tuple(OPS.index(op) for op in ("s", "r", "cpy", "re", "rrc", *_SWITCHED))
_FUSED = (*_PLAIN, *(OPS.index(op) for op in ("rrs", "rcs", "rrcs")))


def _known_operations(dag: ChunkDag) -> bool:
    return bool(np.isin(dag.op, (ASSIGN, REDUCE, LOAD_REDUCE, STORE)).all())


def _slots_exist(dag: ChunkDag) -> bool:
    size = dag.cells().size
    for side, rank in (("src", dag.src_rank), ("dst", dag.dst_rank), ("with", dag.dst_rank)):
        slot, room = getattr(dag, f"{side}_slot"), size[rank, getattr(dag, f"{side}_buffer")]
        if (slot < 0).any() or (slot + dag.count > room).any():
            return False
    return True


def _positive_counts(form: ChunkDag | InstructionDag) -> bool:
    return bool((form.count > 0).all())


def _same_or_apart(dag: ChunkDag) -> bool:
    """Return whether each local operand is exactly the destination, or does not overlap it."""
    cells = dag.cells()
    into = cells.same[dag.where(cells, "dst")]
    copied = _overlap_partly(cells.same[dag.where(cells, "src")], into, dag.count)
    added = _overlap_partly(cells.same[dag.where(cells, "with")], into, dag.count)
    local = dag.src_rank == dag.dst_rank
    return not (local & copied).any() and not ((dag.op == REDUCE) & added).any()


def _overlap_partly(one: Indices, two: Indices, count: Indices) -> Mask:
    return np.asarray((one != two) & (np.abs(one - two) < count))


def _only_plain(dag: InstructionDag) -> bool:
    return bool(np.isin(dag.op, _PLAIN).all())


def _only_known(dag: InstructionDag) -> bool:
    return bool(np.isin(dag.op, _FUSED).all())


def _messages_have_two_ends(dag: InstructionDag) -> bool:
    """Return whether both ends of every message agree on sender, receiver and size."""
    out, into = np.flatnonzero(dag.receiver >= 0), np.flatnonzero(dag.sender >= 0)
    receivers, senders = dag.receiver[out], dag.sender[into]
    return bool(
        (dag.sends() == (dag.receiver >= 0)).all()
        and (dag.receives() == (dag.sender >= 0)).all()
        and (dag.sender[receivers] == out).all()
        and (dag.receiver[senders] == into).all()
        and (dag.rank[receivers] == dag.send_to[out]).all()
        and (dag.rank[senders] == dag.recv_from[into]).all()
        and (dag.count[receivers] == dag.count[out]).all()
    )


def _needs_stay_on_a_rank(dag: InstructionDag) -> bool:
    after, before = dag.needs.after, dag.needs.before
    return bool((dag.rank[after] == dag.rank[before]).all() and (after != before).all())


def _well_formed(program: Program) -> bool:
    return not shape(program)


FORMS: Mapping[str, tuple[Callable[[Any], bool], ...]] = {
    "chunk dag": (_known_operations, _positive_counts, _slots_exist, _same_or_apart),
    "instruction dag": (_only_plain, _positive_counts, _messages_have_two_ends, _needs_stay_on_a_rank),
    "fused dag": (_only_known, _positive_counts, _messages_have_two_ends, _needs_stay_on_a_rank),
    "program": (_well_formed,),
}


def require(form: str, value: object) -> None:
    """Check every rule of ``form``; raises AssertionError naming the broken rule."""
    for rule in FORMS[form]:
        assert rule(value), f"{form}: {rule.__name__.strip('_').replace('_', ' ')} does not hold"
