"""The file of `--collective redistribute:FILE`: tensors, and the layouts between which they move."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from ccctl.arguments.networks import parse_ranks
from ccctl.artifacts import read_document
from ccctl.errors import CcctlError, DataError

if TYPE_CHECKING:
    from synth.redistribution import MeshLayout, Moved, Redistribution

__all__ = ["read_redistribution"]

# Limits that a mistyped figure exceeds: axes (NumPy's), tensors of one model, bytes of all (1 EiB).
_MOST_AXES = 64
_MOST_TENSORS = 100_000
_MOST_BYTES = 1 << 60
_LAYOUT = {"ranks", "mesh", "placements"}
_TENSOR = {"name", "shape", "dtype", "element_bytes", "count", "source", "target"}


def read_redistribution(path: str, ranks: int) -> Redistribution:
    """Return the blocks that the file asks to move; raises DataError, MissingInputError or UsageError."""
    from synth.redistribution import redistribution

    document = read_document(path)
    problems = [
        f"{key}: unknown; expected source, target and tensor"
        for key in document.keys() - {"source", "target", "tensor"}
    ]
    tables = document.get("tensor", [])
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        problems.append("tensor: expected a list of tables")
        tables = []
    moved = [_moved(table, f"tensor[{at}]", document, problems) for at, table in enumerate(tables)]
    known = [one for one in moved if one is not None]
    if sum(one.count for one in known) > _MOST_TENSORS:
        problems.append(f"tensor: expected at most {_MOST_TENSORS} tensors")
    if sum(math.prod(one.shape) * one.element_bytes * one.count for one in known) > _MOST_BYTES:
        problems.append(f"tensor: expected at most {_MOST_BYTES} bytes in all")
    if not problems:
        try:
            found = redistribution(ranks, known)
            if found.size_bytes:
                return found
            problems.append("nothing has to move: every rank already holds all that it must have")
        except CcctlError as error:
            problems.append(error.message)
    raise DataError(
        path,
        problems[:20],
        hint='Such as [source] ranks = "0-3", placements = ["shard(0)"]; target alike; [[tensor]] '
        'shape = [4096, 4096], dtype = "bfloat16".',
    )


def _moved(entry: dict[str, Any], path: str, document: dict[str, Any], problems: list[str]) -> Moved | None:
    from synth.redistribution import Moved

    before = len(problems)
    problems += [f"{path}.{key}: unknown" for key in sorted(entry.keys() - _TENSOR)]
    shape = _whole_numbers(entry.get("shape"), f"{path}.shape", _MOST_BYTES, _MOST_AXES, problems)
    count = entry.get("count", 1)
    if type(count) is not int or not 1 <= count <= _MOST_TENSORS:
        problems.append(f"{path}.count: expected 1 to {_MOST_TENSORS}, found {count!r}")
    element_bytes = _element_bytes(entry, path, problems)
    sides = [
        _layout(
            entry.get(side, document.get(side)), side if side not in entry else f"{path}.{side}", problems
        )
        for side in ("source", "target")
    ]
    source, target = sides
    if len(problems) > before or source is None or target is None:
        return None
    return Moved(tuple(shape), element_bytes, source, target, count)


def _element_bytes(entry: dict[str, Any], path: str, problems: list[str]) -> int:
    from exec.program import dtype_of

    if "element_bytes" in entry:
        found = entry["element_bytes"]
        if type(found) is int and 1 <= found <= 64:
            return found
        problems.append(f"{path}.element_bytes: expected 1 to 64, found {found!r}")
        return 1
    try:
        return dtype_of(str(entry.get("dtype", "float32"))).itemsize
    except CcctlError as error:
        problems.append(f"{path}.{error.message}; or give element_bytes")
        return 1


def _layout(found: object, path: str, problems: list[str]) -> MeshLayout | None:
    """Return a layout; without ``mesh`` its ranks are a mesh of one axis."""
    from synth.redistribution import MeshLayout

    if not isinstance(found, dict):
        problems.append(f"{path}: expected a table with ranks and placements")
        return None
    before = len(problems)
    problems += [f"{path}.{key}: unknown" for key in sorted(found.keys() - _LAYOUT)]
    ranks = found.get("ranks")
    try:
        ranks = list(parse_ranks(ranks, f"{path}.ranks")) if isinstance(ranks, str) else ranks
    except CcctlError as error:
        problems.append(error.message)
        return None
    ranks = _whole_numbers(ranks, f"{path}.ranks", 1 << 16, 1 << 16, problems)
    mesh = _whole_numbers(found.get("mesh", [len(ranks)]), f"{path}.mesh", 1 << 16, _MOST_AXES, problems, 1)
    placements = found.get("placements", ["replicate"])
    if not isinstance(placements, list):
        problems.append(f"{path}.placements: expected a list, found {placements!r}")
        return None
    cuts: list[int | None] = []
    for at, placement in enumerate(placements):
        match = re.fullmatch(
            r"(?:replicate|R)|(?:shard\((?:dim=)?|S\(?)(\d{1,2})\)?", str(placement), re.IGNORECASE
        )
        if match is None:
            problems.append(
                f"{path}.placements[{at}]: expected replicate or shard(AXIS) such as shard(0), "
                f"found {placement!r}"
            )
        else:
            cuts.append(None if match[1] is None else int(match[1]))
    return MeshLayout(tuple(ranks), tuple(mesh), tuple(cuts)) if len(problems) == before else None


def _whole_numbers(
    found: object, path: str, largest: int, longest: int, problems: list[str], least: int = 0
) -> list[int]:
    if (
        isinstance(found, list)
        and 1 <= len(found) <= longest
        and all(type(one) is int and least <= one <= largest for one in found)
    ):
        return found
    problems.append(
        f"{path}: expected a list of whole numbers from {least} to {largest}, found {found!r:.80}"
    )
    return []
