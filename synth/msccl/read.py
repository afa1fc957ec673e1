"""Reads MSCCL XML as its executors do: the src of rrc, rrs and rrcs is the local operand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from probes.base import LARGEST, DataError, Indices, bytes_of, first_of, ints, offsets, whole
from synth.collective import MOST_CHUNKS, Collective, custom
from synth.msccl.elements import Elements, parse
from synth.msccl.names import KIND, collective_of
from synth.program import BUFFERS, GC3_OPS, READS_SRC, WRITES_DST, Program
from synth.rank_sets import each

__all__ = ["read_xml"]

_PROTOCOLS = {"simple": "Simple", "ll": "LL", "ll128": "LL128"}
# Buffers of more chunks are refused before their arrays fill the memory.
_MOST_CHUNKS = 1 << 22
# A value fits into NumPy's int64 even after small numbers are added.
_LARGEST = 1 << 62
# A mistake is often repeated in every step; the first ones show what is wrong.
_ENOUGH = 20


def read_xml(content: bytes, source: str) -> Program:
    """Return the program of an ``<algo>`` element; raises DataError with every problem found.

    Missing attributes take their defaults, and attributes that executors do not read are ignored. The file
    does not define the result of a ``custom`` collective. O(steps).
    """
    elements = parse(content, source)
    found: list[str] = []
    try:
        program = _program(elements, found)
    except _Unreadable:
        program = None
    if found or program is None:
        raise DataError(source, first_of(found, _ENOUGH, "problem"), hint="is it MSCCL's <algo> format?")
    if found := program.problems():
        # The file is readable, but its program is inconsistent.
        in_place = any(line.startswith("in_place:") for line in found)
        hint = 'A program that runs out of place has inplace="0" outofplace="1".'
        raise DataError(source, first_of(found, _ENOUGH, "problem"), hint=hint if in_place else "")
    return program


class _Unreadable(Exception):  # noqa: N818 - never leaves this module
    """Raised to stop reading; the problems found so far are the reason."""


@dataclass(frozen=True, eq=False)
class _Blocks:
    """Threadblocks by rank and id: the row in the file and the rank of each; the first of each rank."""

    row: Indices
    rank: Indices
    first: Indices


def _program(elements: Elements, found: list[str]) -> Program:
    algo = elements.algo
    gpus = elements.gpus.numbers("id", found)
    ranks = len(gpus)
    _require_gpus(gpus, found)
    if "ngpus" in algo and _number(algo, "ngpus", found) != ranks:
        found.append(f"ngpus: {algo['ngpus']} are announced, {ranks} are described")
    blocks = _blocks(elements, gpus, found)
    _stop(found)
    sizes = np.zeros((ranks, 3), dtype=np.int64)
    for column, name in enumerate(("i_chunks", "o_chunks", "s_chunks")):
        sizes[gpus, column] = elements.gpus.numbers(name, found, default=0)
        for gpu in np.flatnonzero((sizes[:, column] < 0) | (sizes[:, column] > _MOST_CHUNKS))[:5]:
            found.append(f"gpu {gpu}: {name}: expected 0 to {_MOST_CHUNKS}, found {sizes[gpu, column]}")
    _stop(found)
    kind, in_place = algo.get("coll", "").lower(), bool(_number(algo, "inplace", found, 0))
    per_loop = _number(algo, "nchunksperloop", found, int(sizes[:, :2].max(initial=0)))
    known = kind != "custom"
    wanted = _collective(kind, ranks, per_loop, _number(algo, "root", found, 0), sizes, found)
    # Tools that write no attribute outofplace write inplace even for collectives that cannot be in place.
    never_in_place = known and wanted.keeps_apart and "outofplace" not in algo
    protocol = _PROTOCOLS.get(algo.get("proto", "Simple").lower())
    if protocol is None:
        found.append(f"proto: expected Simple, LL or LL128, found {algo['proto']!r}")
    _stop(found)
    columns = _steps(elements, blocks, found)
    channel = elements.blocks.numbers("chan", found, default=0)[blocks.row]
    announced = _number(algo, "nchannels", found, 0)
    if announced and len(channel) and announced <= channel.max():
        found.append(f"nchannels: {announced} are announced, a threadblock uses channel {channel.max()}")
    _stop(found)
    return Program(
        name=algo.get("name", "") or "unnamed",
        collective=wanted,
        protocol=protocol,  # type: ignore[arg-type] # one of the values of _PROTOCOLS
        scratch_chunks=tuple(sizes[:, 2].tolist()),
        tb_rank=ints(blocks.rank),
        tb_send=ints(elements.blocks.numbers("send", found, default=-1)[blocks.row]),
        tb_recv=ints(elements.blocks.numbers("recv", found, default=-1)[blocks.row]),
        tb_channel=ints(channel),
        out_of_place=never_in_place or bool(_number(algo, "outofplace", found, 0 if in_place else 1)),
        in_place=in_place and not never_in_place,
        min_bytes=_number(algo, "minBytes", found, 0, LARGEST),
        max_bytes=_number(algo, "maxBytes", found, 0, LARGEST),
        input_chunks=() if known else tuple(sizes[:, 0].tolist()),
        output_chunks=() if known else tuple(sizes[:, 1].tolist()),
        **columns,
    )


def _collective(
    kind: str, ranks: int, per_loop: int, root: int, sizes: Indices, found: list[str]
) -> Collective:
    if kind == "custom":
        # The file states the sizes of buffers, but not the result.
        if sizes[:, 0].sum() > MOST_CHUNKS:
            found.append(f"i_chunks: expected at most {MOST_CHUNKS} on all gpus, found {sizes[:, 0].sum()}")
            raise _Unreadable
        owner = each(np.repeat(np.arange(ranks), sizes[:, 0]), ranks)
        return custom(ranks, owner, owner, np.zeros(len(owner.group), dtype=bool))
    if kind not in KIND:
        found.append(f"coll: expected {', '.join(sorted(KIND))} or custom, found {kind!r}")
        raise _Unreadable
    if not 1 <= per_loop <= _MOST_CHUNKS:
        wrong = f"more than {_MOST_CHUNKS}" if per_loop > 0 else "less than 1"
        found.append(f"nchunksperloop: {per_loop} is {wrong}")
        raise _Unreadable
    wanted = collective_of(KIND[kind], ranks, per_loop, root)
    found += [
        f"nchunksperloop: {per_loop} chunks cannot be shared out: {problem}" for problem in wanted.problems()
    ]
    return wanted


def _blocks(elements: Elements, gpus: Indices, found: list[str]) -> _Blocks:
    rank = gpus[elements.blocks.parent] if len(gpus) else np.zeros(0, dtype=np.int64)
    number = elements.blocks.numbers("id", found)
    row = np.lexsort((number, rank))
    counts = np.bincount(rank, minlength=len(gpus) + 1)
    first = offsets(counts)
    expected = np.arange(len(row)) - first[:-1][rank[row]] if len(row) else number
    for at in np.flatnonzero(number[row] != expected)[:5]:
        found.append(f"gpu {rank[row[at]]}: threadblock {expected[at]} is missing, or another has its id")
    return _Blocks(row, rank[row], first)


def _steps(elements: Elements, blocks: _Blocks, found: list[str]) -> dict[str, Any]:
    table = elements.steps
    place = np.empty(len(blocks.row), dtype=np.int64)
    place[blocks.row] = np.arange(len(blocks.row))
    tb = place[table.parent]
    number = table.numbers("s", found)
    order = np.lexsort((number, tb))
    counts = np.bincount(tb, minlength=len(place))
    start = offsets(counts)
    tb, number = tb[order], number[order]
    for at in np.flatnonzero(number != np.arange(len(tb)) - start[tb])[:5]:
        found.append(
            f"{_tb_name(blocks, tb[at])}: step {at - start[tb[at]]} is missing, or another has its number"
        )
    op = table.choices("type", GC3_OPS, found)[order]
    columns: dict[str, Any] = {"tb_start": ints(start), "op": bytes_of(op)}
    for side, uses in (("src", READS_SRC), ("dst", WRITES_DST)):
        used = np.array(uses)[op]
        buffer = table.choices(f"{side}buf", BUFFERS, found, default="i")[order]
        slot = table.numbers(f"{side}off", found, default=-1)[order]
        columns[f"{side}_buffer"] = bytes_of(np.where(used, buffer, 0))
        columns[f"{side}_slot"] = ints(np.where(used, slot, -1))
    columns["count"] = ints(np.where(op == 0, 1, table.numbers("cnt", found, default=1)[order]))
    _waits(
        table.numbers("depid", found, default=-1)[order],
        table.numbers("deps", found, default=-1)[order],
        blocks,
        tb,
        start,
        columns,
        found,
    )
    has_dep = table.numbers("hasdep", found, default=1)[order]
    # Waits for steps that do not exist are noted already, so they are left out here.
    tb_of_wait, step_of_wait = columns["wait_tb"], columns["wait_step"]
    waits = (tb_of_wait >= 0) & (step_of_wait >= 0) & (step_of_wait < np.diff(start)[tb_of_wait])
    awaited = np.unique(start[tb_of_wait[waits]] + step_of_wait[waits])
    for at in awaited[has_dep[awaited] == 0][:5]:
        step = at - start[tb[at]]
        found.append(
            f'{_tb_name(blocks, tb[at])} step {step}: hasdep="0" says that no step waits for it, but one does'
        )
    return columns


def _waits(
    other: Indices,
    goal: Indices,
    blocks: _Blocks,
    tb: Indices,
    start: Indices,
    columns: dict[str, Any],
    found: list[str],
) -> None:
    """Resolve the step that each step waits for: step ``goal`` of threadblock ``other`` on its rank."""
    rank = blocks.rank[tb] if len(tb) else tb
    waits = other >= 0
    of_rank = (blocks.first[1:] - blocks.first[:-1])[rank]
    absent = waits & (other >= of_rank)
    row = np.where(waits & ~absent, blocks.first[:-1][rank] + other, 0)
    absent |= waits & ((goal < 0) | (goal >= np.diff(start)[row] if len(row) else False))
    for at in np.flatnonzero(absent)[:5]:
        step = at - start[tb[at]]
        found.append(
            f"{_tb_name(blocks, tb[at])} step {step}: waits for step {goal[at]} of threadblock {other[at]}, "
            "which does not exist"
        )
    columns["wait_tb"] = ints(np.where(waits, row, -1))
    columns["wait_step"] = ints(np.where(waits, goal, -1))


def _tb_name(blocks: _Blocks, tb: int) -> str:
    return f"gpu {blocks.rank[tb]} threadblock {tb - blocks.first[blocks.rank[tb]]}"


def _require_gpus(gpus: Indices, found: list[str]) -> None:
    if not len(gpus):
        found.append("gpu: expected at least one <gpu>")
    for lacking in np.setdiff1d(np.arange(len(gpus)), gpus)[:5]:
        found.append(f"gpu: gpu {lacking} is missing, or another has its id")
    _stop(found)


def _stop(found: list[str]) -> None:
    if found:
        raise _Unreadable


def _number(
    attributes: Mapping[str, str],
    name: str,
    found: list[str],
    default: int | None = None,
    most: int = _LARGEST,
) -> int:
    text = attributes.get(name)
    if text is None and default is not None:
        return default
    value = None if text is None else whole(text.strip(), -most, most)
    if value is None:
        found.append(f"{name}: expected a whole number up to {most}, found {str(text)[:40]!r}")
        return default or 0
    return value
