"""Fusion of a receive with the send that forwards its chunk: rcs, rrcs, rrs (GC3 Sec. 5.3.1).

The two fuse only if the send alone reads the received chunks, and from the same slots. The local copy is left
out (rrs) if nothing needs it: its slots are overwritten unread, or are not part of any result.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from probes.base import Indices, Mask, offsets
from synth.compiler.hazards import Dependences
from synth.compiler.instruction_dag import InstructionDag
from synth.program import OPS

__all__ = ["fused", "pairs"]

_S, _R, _RRC, _RRS, _RCS, _RRCS = (OPS.index(op) for op in ("s", "r", "rrc", "rrs", "rcs", "rrcs"))

_SLOTS = ("src_buffer", "src_slot", "dst_buffer", "dst_slot")


def pairs(dag: InstructionDag) -> Indices:
    """Return for each receive the send that may be fused with it, or -1."""
    needs = dag.needs
    reads = np.bincount(needs.before[needs.true], minlength=dag.rows)
    found = np.full(dag.rows, -1, dtype=np.int64)
    only = np.diff(needs.start)
    # A send depends only on the rows that wrote its source, so one dependence means one such row.
    send, receive = needs.after[needs.true], needs.before[needs.true]
    fits = (dag.op[send] == _S) & np.isin(dag.op[receive], (_R, _RRC))
    fits &= (only[send] == 1) & (reads[receive] == 1)
    for one, two in (("src_buffer", "dst_buffer"), ("src_slot", "dst_slot")):
        fits &= getattr(dag, one)[send] == getattr(dag, two)[receive]
    for name in ("count", "channel", "tb", "instance"):
        fits &= getattr(dag, name)[send] == getattr(dag, name)[receive]
    found[receive[fits]] = send[fits]
    return found


def fused(dag: InstructionDag, pair: Indices) -> InstructionDag:
    """Return the rows with each pair merged into one, at the place of its receive."""
    receive = np.flatnonzero(pair >= 0)
    send = pair[receive]
    op, send_to, receiver = dag.op.copy(), dag.send_to.copy(), dag.receiver.copy()
    dead = ~dag.needs.kept[receive]
    op[receive] = np.where(op[receive] == _R, _RCS, np.where(dead, _RRS, _RRCS))
    send_to[receive], receiver[receive] = dag.send_to[send], dag.receiver[send]
    into = np.arange(dag.rows)
    into[send] = receive
    stays = np.ones(dag.rows, dtype=bool)
    stays[send] = False
    number = np.cumsum(stays) - 1
    place = number[into]
    columns: dict[str, Any] = {
        name: getattr(dag, name)[stays]
        for name in (*_SLOTS, "rank", "count", "recv_from", "tb", "channel", "instance", "line")
    }
    columns["when"] = dag.when[stays] if len(dag.when) else dag.when
    unwritten = op[stays] == _RRS
    columns["dst_buffer"] = np.where(unwritten, 0, columns["dst_buffer"])
    columns["dst_slot"] = np.where(unwritten, -1, columns["dst_slot"])
    ends: dict[str, Any] = {
        name: np.where(column[stays] >= 0, place[column[stays]], -1)
        for name, column in (("sender", dag.sender), ("receiver", receiver))
    }
    needs = _moved(dag.needs, place, stays, int(stays.sum()))
    return replace(dag, op=op[stays], send_to=send_to[stays], needs=needs, **ends, **columns)


def _moved(needs: Dependences, place: Indices, stays: Mask, rows: int) -> Dependences:
    """Return the dependences between the remaining rows, without those inside a pair."""
    after, before = place[needs.after], place[needs.before]
    outside = after != before
    order = np.argsort(after[outside], kind="stable")
    start = offsets(np.bincount(after[outside], minlength=rows))
    return Dependences(start, before[outside][order], needs.true[outside][order], needs.kept[stays])
