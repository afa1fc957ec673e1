"""Chrome's trace-event JSON, which ui.perfetto.dev and chrome://tracing draw, written as a stream.

Processes group tracks, threads are tracks, and slices lie on tracks. Times are in microseconds with six
decimals, so that durations are exact and adjacent slices do not overlap.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from ccctl import console
from ccctl.artifacts import write_atomically
from probes.base import Floats, Indices, unsteered_json

__all__ = ["BLOCK", "Slices", "Track", "write_trace"]

# The number of slices formatted at a time, to limit memory.
BLOCK = 8192


@dataclass(frozen=True)
class Track:
    """One row of the picture; numbers begin at 1, and no two tracks have the same ``number``."""

    number: int
    name: str
    group: int
    group_name: str


@dataclass(frozen=True, eq=False)
class Slices:
    """Slices as columns; ``names`` and ``args`` (JSON objects as text) are computed row by row."""

    group: Indices
    track: Indices
    start_s: Floats
    end_s: Floats
    names: Iterable[str]
    args: Iterable[str]


def write_trace(
    path: str, about: Mapping[str, Any], tracks: Iterable[Track], blocks: Iterable[Slices]
) -> None:
    """Write a trace as a stream; "-" is stdout, ``.gz`` compresses."""
    content = _content(about, tracks, blocks)
    if path.endswith(".gz"):
        content = _compressed(content)
    if path == "-":
        for part in content:
            console.raw(part)
    else:
        write_atomically(Path(path), content)


def _content(about: Mapping[str, Any], tracks: Iterable[Track], blocks: Iterable[Slices]) -> Iterator[bytes]:
    head = unsteered_json(json.dumps(dict(about), ensure_ascii=False))
    yield f'{{"displayTimeUnit":"ns","otherData":{head},"traceEvents":[\n'.encode()
    between = ""
    for line in chain(_named(tracks), (",\n".join(_events(block)) for block in blocks)):
        if line:
            yield f"{between}{line}".encode()
            between = ",\n"
    yield b"\n]}\n"


def _named(tracks: Iterable[Track]) -> Iterator[str]:
    """Yield the names and the order of the tracks and their groups."""
    known: set[int] = set()
    for track in tracks:
        if track.group not in known:
            known.add(track.group)
            yield from _name("process", track.group, 0, track.group, track.group_name)
        yield from _name("thread", track.group, track.number, track.number, track.name)


def _name(what: str, group: int, track: int, order: int, name: str) -> Iterator[str]:
    for key, value in (("name", name), ("sort_index", order)):
        event = {"ph": "M", "name": f"{what}_{key}", "pid": group, "tid": track, "args": {key: value}}
        yield unsteered_json(json.dumps(event, ensure_ascii=False, separators=(",", ":")))


def _events(block: Slices) -> Iterator[str]:
    # Round ends instead of durations, so that adjacent slices stay adjacent.
    start, end = (np.rint(moment_s * 1e12).astype(np.int64) for moment_s in (block.start_s, block.end_s))
    columns = (block.group, block.track, start, end - start)
    for group, track, begin, lasts, name, args in zip(
        *(column.tolist() for column in columns), block.names, block.args, strict=True
    ):
        yield (
            f'{{"ph":"X","pid":{group},"tid":{track},"ts":{_microseconds(begin)},'
            f'"dur":{_microseconds(lasts)},"name":"{name}","args":{args}}}'
        )


def _microseconds(picoseconds: int) -> str:
    whole, rest = divmod(picoseconds, 1_000_000)
    return f"{whole}.{rest:06}"


def _compressed(content: Iterable[bytes]) -> Iterator[bytes]:
    # 31 selects a gzip header without name and time, so that equal traces give equal bytes.
    squeeze = zlib.compressobj(6, zlib.DEFLATED, 31)
    for part in content:
        yield squeeze.compress(part)
    yield squeeze.flush()
