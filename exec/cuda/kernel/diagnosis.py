"""Diagnosis of a kernel that gave up: which threadblock waited for which."""

from __future__ import annotations

from collections.abc import Iterable

from exec.cuda.kernel.encode import RECORD, Encoded
from probes.columns import Indices

__all__ = ["waiters"]

_RAN_OUT = 1
_MESSAGE, _ROOM, _STEP = 1, 2, 3


def waiters(encoded: Encoded, records: Indices) -> list[str]:
    """A line for each threadblock that waited: first those whose own time ran out; none where all ended.

    ``records`` has a row of RECORD for each threadblock that was launched.
    """
    rows = [dict(zip(RECORD, row, strict=True)) for row in records.tolist() if row[RECORD.index("state")]]
    rows.sort(key=lambda row: (row["state"] != _RAN_OUT, row["rank"], row["number"]))
    return list(_lines(encoded, rows))


def _lines(encoded: Encoded, rows: Iterable[dict[str, int]]) -> Iterable[str]:
    program = encoded.layout.program
    for row in rows:
        tb = encoded.blocks_of(row["rank"])[row["number"]]
        step = int(program.tb_start[tb]) + row["origin"]
        part = f"tile {row['tile']}, slice {row['slice']}"
        found = f"found {row['seen']}, needs {row['wanted']}"
        yield f"{program.place(step)} waits for {_whom(row)} ({part}; {found})"


def _whom(row: dict[str, int]) -> str:
    match row["reason"]:
        case reason if reason == _MESSAGE:
            return f"a message from rank {row['peer']} on channel {row['channel']}"
        case reason if reason == _ROOM:
            return f"rank {row['peer']} to receive on channel {row['channel']}"
        case reason if reason == _STEP:
            return f"threadblock {row['peer']} of its rank"
    raise AssertionError(f"reason {row['reason']}")
