"""The output of ``rocm-smi --showtopo`` and ``amd-smi topology``: AMD GPUs joined by xGMI, and NUMA nodes.

A table of link types has a word for each pair of GPUs; a table of hops has the number of links on the path.
rocm-smi numbers GPUs, amd-smi names their PCI functions. Neither prints how many xGMI links join two GPUs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import PurePath

from probes.base import DataError, first_number, normal_bus_id
from probes.smi.text import decoded
from probes.topology import FabricLink, Gpu, Host, Matrix, NumaNode, Topology

__all__ = ["METHOD", "is_json", "is_rocm", "read"]

METHOD = "rocm_smi"
_MARK = re.compile(r"ROCm System Management|between two (GPUs|DRM)|LINK TYPE TABLE:|\(Topology\)")
_JSON_KEY = b'"(Topology) '
_TITLE = re.compile(r"([a-z][a-z -]*?) (?:between (?:two|drm)|table:)")
_DEVICE = re.compile(r"GPU[0-9]{1,6}|[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_NUMA = re.compile(r"GPU ?\[?([0-9]{1,6})\]?\s*:\s*\(Topology\) Numa (Node|Affinity): ?(\S+)")
_JSON_PAIR = re.compile(
    r"\(topology\) (hops|link type) between drm devices ([0-9]{1,6}) and ([0-9]{1,6})", re.IGNORECASE
)
_JSON_CARD = re.compile(r"card([0-9]{1,6})")
_LINKS, _HOPS = "link type", "hops"
# No host has more GPUs, and the work grows with the square of their number.
_MOST_GPUS = 256
_HINT = "Give all that rocm-smi --showtopo prints, or amd-smi topology."

_Table = dict[tuple[str, str], str]


@dataclass
class _Tables:
    """The GPUs in order, tables by the first words of their title, NUMA nodes by GPU."""

    gpus: list[str] = field(default_factory=list)
    tables: dict[str, _Table] = field(default_factory=lambda: {_LINKS: {}, _HOPS: {}})
    numa: dict[str, int | None] = field(default_factory=dict)

    def word(self, title: str, a: str, b: str) -> str:
        """Return the cell of two GPUs in either order, because JSON lists each pair once."""
        table = self.tables[title]
        return table.get((a, b)) or table.get((b, a), "")


def is_rocm(content: bytes) -> bool:
    """Return whether this is the output of rocm-smi or amd-smi."""
    return bool(_MARK.search(decoded(content)))


def is_json(content: bytes) -> bool:
    """Return whether this is the output of ``rocm-smi --showtopo --json``."""
    return content.lstrip().startswith(b"{") and _JSON_KEY in content


def read(content: bytes, source: str) -> Topology:
    """Read the machine from these tables; raises DataError if link types are missing."""
    found = _of_json(content, source) if is_json(content) else _of_text(decoded(content))
    pairs = list(combinations(found.gpus, 2))
    untold = [pair for pair in pairs if not found.word(_LINKS, *pair)]
    if not found.gpus or len(found.gpus) > _MOST_GPUS:
        text = f"expected a table of link types of 1 to {_MOST_GPUS} GPUs, found {len(found.gpus)} GPUs"
        raise DataError(source, [text], hint=_HINT)
    if untold:
        named = " and ".join(untold[0])
        text = f"expected a link type for each two GPUs, found none for {len(untold)} pairs, {named} first"
        raise DataError(source, [text], hint=_HINT)
    name = PurePath(source).stem
    host = _host(name, found)
    notes = (f"{name}: how many xGMI links join two GPUs is not told: one is assumed",) if host.fabric else ()
    return Topology((host,), notes=notes)


def _of_text(text: str) -> _Tables:
    found = _Tables()
    title, columns = "", list[str]()
    for line in text.split("\n"):
        numa, words = _NUMA.search(line), line.split()
        heading = _TITLE.search(line.lower())
        if numa:
            name = f"GPU{int(numa[1])}"
            found.numa[name] = found.numa.get(name) or first_number(numa[3])
        elif heading:
            title, columns = heading[1], []
        elif words and all(map(_DEVICE.fullmatch, words)):
            columns = words
            found.gpus = words if title == _LINKS else found.gpus
        elif title in found.tables and words[:1] and words[0] in columns and len(words) == len(columns) + 1:
            found.tables[title].update(
                {(words[0], to): word for to, word in zip(columns, words[1:], strict=True)}
            )
    return found


def _of_json(content: bytes, source: str) -> _Tables:
    import msgspec

    try:
        parts = msgspec.json.decode(content, type=dict[str, dict[str, str]])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(source, [f"the JSON of rocm-smi: {error}"], hint=_HINT) from error
    found, numbers = _Tables(), set[int]()
    for part, values in parts.items():
        card = _JSON_CARD.fullmatch(part)
        if card:
            numbers.add(int(card[1]))
            found.numa[f"GPU{int(card[1])}"] = first_number(values.get("(Topology) Numa Node", ""))
        for key, word in values.items():
            pair = _JSON_PAIR.fullmatch(key)
            if pair:
                ends = int(pair[2]), int(pair[3])
                numbers.update(ends)
                found.tables[pair[1].lower()][f"GPU{ends[0]}", f"GPU{ends[1]}"] = word
    found.gpus = [f"GPU{number}" for number in sorted(numbers)]
    return found


def _host(name: str, found: _Tables) -> Host:
    keys = {gpu: gpu.lower() if gpu.startswith("GPU") else normal_bus_id(gpu) for gpu in found.gpus}
    gpus = tuple(
        Gpu(
            key,
            METHOD,
            index=int(gpu[3:]) if gpu.startswith("GPU") else number,
            vendor="amd",
            numa=found.numa.get(gpu),
        )
        for number, (gpu, key) in enumerate(keys.items())
    )
    nodes = sorted({gpu.numa for gpu in gpus if gpu.numa is not None})
    joined = [pair for pair in combinations(found.gpus, 2) if _is_joined(found, *pair)]
    return Host(
        name=name,
        method=METHOD,
        numa=tuple(NumaNode(index, METHOD) for index in nodes),
        gpus=gpus,
        fabric=tuple(_links([(keys[a], keys[b]) for a, b in joined])),
        matrices=(_matrix(list(keys.values()), {(keys[a], keys[b]) for a, b in joined}),),
    )


def _is_joined(found: _Tables, a: str, b: str) -> bool:
    return found.word(_LINKS, a, b) == "XGMI" and found.word(_HOPS, a, b) in ("", "1")


def _links(pairs: Sequence[tuple[str, str]]) -> Iterator[FabricLink]:
    for a, b in pairs:
        yield FabricLink(a, b, "gpu", "xgmi", 1, METHOD, state="up")
        yield FabricLink(b, a, "gpu", "xgmi", 1, METHOD, state="up")


def _matrix(devices: Sequence[str], joined: set[tuple[str, str]]) -> Matrix:
    """Return the matrix of pairs that xGMI joins; PCIe paths follow from NUMA nodes."""
    cells = tuple(
        tuple("X" if a == b else "NVL" if {(a, b), (b, a)} & joined else "" for b in devices) for a in devices
    )
    return Matrix("path", tuple(devices), cells, METHOD)
