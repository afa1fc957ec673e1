"""The topology tables of rocm-smi and amd-smi: AMD GPUs joined by xGMI, and NUMA nodes.

A table of link types has a word for each pair of GPUs. The word is "XGMI", and "Hops" is 1, even if two GPUs
reach each other only through a third one. Only the weight shows the difference, and the bandwidth of amd-smi,
which is 0 without a direct link. A bandwidth is a range in MB/s, from the bandwidth of one link to that of
all links of the pair; so it also shows the number of links. rocm-smi numbers GPUs, amd-smi names their PCI
functions. The JSON of rocm-smi has them, too, and models and memory, if its options showbus, showproductname
and showmeminfo ask for them; releases write the keys with different capitals.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import PurePath
from typing import TypeVar

from probes.base import DataError, first_number, normal_bus_id, whole
from probes.smi.text import decoded
from probes.topology import FabricLink, Gpu, Host, Matrix, NumaNode, Topology

__all__ = ["METHOD", "is_json", "is_rocm", "read"]

METHOD = "rocm_smi"
_MARK = re.compile(r"ROCm System Management|between two (GPUs|DRM)|LINK TYPE TABLE:|\(Topology\)")
_JSON_KEY = b'"(Topology) '
_AMD_JSON_KEYS = (b'"link_type"', b'"links"')
_TITLE = re.compile(r"([a-z][a-z -]*?) (?:between (?:two|drm)|table:)|=== *(bandwidth) *===")
_DEVICE = re.compile(r"GPU[0-9]{1,6}|[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_NUMA = re.compile(r"GPU ?\[?([0-9]{1,6})\]?\s*:\s*\(Topology\) Numa (Node|Affinity): ?(\S+)")
_JSON_PAIR = re.compile(
    r"\(topology\) (hops|link type|weight) between drm devices ([0-9]{1,6}) and ([0-9]{1,6})", re.IGNORECASE
)
_JSON_CARD = re.compile(r"card([0-9]{1,6})")
_LINKS, _HOPS, _WEIGHT, _RATES = "link type", "hops", "weight", "bandwidth"
# amd-smi's title of the table that rocm-smi calls Bandwidth.
_RATES_OF_AMD_SMI = "numa bw"
# The driver (amdgpu) gives each xGMI link on a path this weight. A pair without a path table has weight 0.
_WEIGHT_OF_LINK = 15
_RATE = re.compile(r"([0-9]{1,9})-([0-9]{1,9})")
# No host has more GPUs, and the work grows with the square of their number.
_MOST_GPUS = 256
_HINT = "Give all that rocm-smi --showtopo prints, or amd-smi topology, or the JSON of either."

_Table = dict[tuple[str, str], str]
_Kind = TypeVar("_Kind")


@dataclass
class _Tables:
    """The GPUs in order, tables by the first words of their title, NUMA nodes and other facts by GPU."""

    gpus: list[str] = field(default_factory=list)
    tables: dict[str, _Table] = field(
        default_factory=lambda: {_LINKS: {}, _HOPS: {}, _WEIGHT: {}, _RATES: {}}
    )
    numa: dict[str, int | None] = field(default_factory=dict)
    cards: dict[str, dict[str, str]] = field(default_factory=dict)

    def word(self, title: str, a: str, b: str) -> str:
        """Return the cell of two GPUs in either order, because JSON lists each pair once."""
        table = self.tables[title]
        return table.get((a, b)) or table.get((b, a), "")

    def rate_mbs(self, a: str, b: str) -> tuple[int, int]:
        """Return the rates of one link and of all links of a pair, in MB/s; zeros if not stated."""
        match = _RATE.fullmatch(self.word(_RATES, a, b))
        return (int(match[1]), int(match[2])) if match else (0, 0)

    def has_rates(self) -> bool:
        """Return whether the driver states rates: a driver without rates gives every pair "0-0"."""
        return any(_RATE.fullmatch(word) and word != "0-0" for word in self.tables[_RATES].values())


@dataclass(frozen=True)
class _AmdLink:
    """A GPU as amd-smi's JSON describes the path to it; an unknown number is a text."""

    gpu: int
    link_type: str = ""
    weight: int | str = ""
    num_hops: int | str = ""
    bandwidth: str = ""


@dataclass(frozen=True)
class _AmdGpu:
    """A GPU in amd-smi's JSON, with the paths to all GPUs."""

    gpu: int
    bdf: str = ""
    links: tuple[_AmdLink, ...] = ()


def is_rocm(content: bytes) -> bool:
    """Return whether this is the output of rocm-smi or amd-smi."""
    return _is_amd_json(content) or bool(_MARK.search(decoded(content)))


def is_json(content: bytes) -> bool:
    """Return whether this is the output of ``rocm-smi --showtopo --json``."""
    return content.lstrip().startswith(b"{") and _JSON_KEY in content


def _is_amd_json(content: bytes) -> bool:
    """Return whether this is the JSON of ``amd-smi topology``, or a part of it."""
    return content.lstrip().startswith(b"[") and all(key in content for key in _AMD_JSON_KEYS)


def read(content: bytes, source: str) -> Topology:
    """Read the machine from these tables; raises DataError if link types are missing."""
    found = _tables(content, source)
    if not found.gpus or len(found.gpus) > _MOST_GPUS:
        text = f"expected a table of link types of 1 to {_MOST_GPUS} GPUs, found {len(found.gpus)} GPUs"
        raise DataError(source, [text], hint=_HINT)
    missing = [pair for pair in combinations(found.gpus, 2) if not found.word(_LINKS, *pair)]
    if missing:
        named = " and ".join(missing[0])
        text = f"expected a link type for each two GPUs, found none for {len(missing)} pairs, {named} first"
        raise DataError(source, [text], hint=_HINT)
    name = PurePath(source).stem
    host = _host(name, found)
    assumed = any(link.gbs is None for link in host.fabric)
    notes = (f"{name}: how many xGMI links join two GPUs is not told: one is assumed",) if assumed else ()
    return Topology((host,), notes=notes)


def _tables(content: bytes, source: str) -> _Tables:
    if _is_amd_json(content):
        return _from_amd_json(content, source)
    return _from_json(content, source) if is_json(content) else _from_text(decoded(content))


def _from_text(text: str) -> _Tables:
    found = _Tables()
    title, columns = "", list[str]()
    for line in text.split("\n"):
        numa, words = _NUMA.search(line), line.split()
        heading = _TITLE.search(line.lower())
        if numa:
            name = f"GPU{int(numa[1])}"
            known = found.numa.get(name)
            found.numa[name] = first_number(numa[3]) if known is None else known
        elif heading:
            title, columns = heading[1] or heading[2], []
            title = _RATES if title == _RATES_OF_AMD_SMI else title
        elif words and all(map(_DEVICE.fullmatch, words)):
            columns = words
            found.gpus = words if title == _LINKS else found.gpus
        elif title in found.tables and words[:1] and words[0] in columns and len(words) == len(columns) + 1:
            found.tables[title].update(
                {(words[0], to): word for to, word in zip(columns, words[1:], strict=True)}
            )
    return found


def _from_json(content: bytes, source: str) -> _Tables:
    parts = _decoded(content, dict[str, dict[str, str]], "rocm-smi", source)
    found, numbers = _Tables(), set[int]()
    for part, values in parts.items():
        card = _JSON_CARD.fullmatch(part)
        if card:
            numbers.add(int(card[1]))
            found.cards[f"GPU{int(card[1])}"] = {key.lower(): word for key, word in values.items()}
            found.numa[f"GPU{int(card[1])}"] = first_number(values.get("(Topology) Numa Node", ""))
        for key, word in values.items():
            pair = _JSON_PAIR.fullmatch(key)
            if pair:
                ends = int(pair[2]), int(pair[3])
                numbers.update(ends)
                found.tables[pair[1].lower()][f"GPU{ends[0]}", f"GPU{ends[1]}"] = word
    found.gpus = [f"GPU{number}" for number in sorted(numbers)]
    return found


def _decoded(content: bytes, kind: type[_Kind], tool: str, source: str) -> _Kind:
    import msgspec

    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(source, [f"the JSON of {tool}: {error}"], hint=_HINT) from error


def _from_amd_json(content: bytes, source: str) -> _Tables:
    gpus = _decoded(content, list[_AmdGpu], "amd-smi", source)
    found, names = _Tables(), {gpu.gpu: _name(gpu) for gpu in gpus}
    if not all(0 <= number < _MOST_GPUS for number in names):
        problem = f"the JSON of amd-smi: expected GPUs numbered from 0 to {_MOST_GPUS - 1}"
        raise DataError(source, [problem], hint=_HINT)
    if len(set(names.values())) != len(gpus):
        raise DataError(source, ["the JSON of amd-smi: a GPU is there a second time"], hint=_HINT)
    for gpu in gpus:
        for link in (link for link in gpu.links if link.gpu in names):
            pair = names[gpu.gpu], names[link.gpu]
            found.tables[_LINKS][pair] = link.link_type
            found.tables[_HOPS][pair] = str(link.num_hops)
            found.tables[_WEIGHT][pair] = str(link.weight)
            found.tables[_RATES][pair] = link.bandwidth
    found.gpus = [names[number] for number in sorted(names)]
    return found


def _name(gpu: _AmdGpu) -> str:
    place = gpu.bdf.lower()
    return place if _DEVICE.fullmatch(place) else f"GPU{gpu.gpu}"


def _host(name: str, found: _Tables) -> Host:
    keys = _bus_ids(found)
    gpus = tuple(
        Gpu(
            key,
            METHOD,
            index=int(gpu[3:]) if gpu.startswith("GPU") else number,
            vendor="amd",
            name=_fact(found, gpu, "card series"),
            memory_bytes=whole(_fact(found, gpu, "vram total memory (b)")),
            arch=_fact(found, gpu, "gfx version"),
            numa=found.numa.get(gpu),
        )
        for number, (gpu, key) in enumerate(keys.items())
    )
    nodes = sorted({gpu.numa for gpu in gpus if gpu.numa is not None})
    joined = list(_direct(found))
    return Host(
        name=name,
        method=METHOD,
        numa=tuple(NumaNode(index, METHOD) for index in nodes),
        gpus=gpus,
        fabric=tuple(link for pair in joined for link in _links(found, keys, pair)),
        matrices=(_matrix(list(keys.values()), {(keys[a], keys[b]) for a, b in joined}),),
    )


def _bus_ids(found: _Tables) -> dict[str, str]:
    """Return the bus id of each GPU; "gpu3" where a source has only numbers, or partitions share one."""
    known = {gpu: _fact(found, gpu, "pci bus").lower() for gpu in found.gpus}
    if all(map(_DEVICE.fullmatch, known.values())) and len(set(known.values())) == len(known):
        return {gpu: normal_bus_id(bus) for gpu, bus in known.items()}
    return {gpu: gpu.lower() if gpu.startswith("GPU") else normal_bus_id(gpu) for gpu in found.gpus}


def _fact(found: _Tables, gpu: str, key: str) -> str:
    """Return a fact of a GPU in rocm-smi's JSON; "" if it is not told.

    rocm-smi of ROCm 4.3 tells the vendor's number where it knows no name.
    """
    word = found.cards.get(gpu, {}).get(key, "")
    return "" if word == "N/A" or word.startswith("0x") else word


def _direct(found: _Tables) -> Iterator[tuple[str, str]]:
    """Yield the pairs of GPUs that a link of xGMI joins directly."""
    has_rates = found.has_rates()
    for a, b in combinations(found.gpus, 2):
        if found.word(_LINKS, a, b) != "XGMI":
            continue
        weight = whole(found.word(_WEIGHT, a, b))
        if has_rates:
            is_direct = found.rate_mbs(a, b)[1] > 0
        elif weight:
            is_direct = weight <= _WEIGHT_OF_LINK
        else:
            is_direct = found.word(_HOPS, a, b) in ("", "1")
        if is_direct:
            yield a, b


def _links(found: _Tables, keys: Mapping[str, str], pair: tuple[str, str]) -> Iterator[FabricLink]:
    """Yield the links of a pair, once for each end."""
    one_mbs, all_mbs = found.rate_mbs(*pair)
    count = round(all_mbs / one_mbs) if one_mbs else 1
    gbs = (one_mbs or all_mbs) / 1000 or None
    for a, b in (pair, pair[::-1]):
        yield FabricLink(keys[a], keys[b], "gpu", "xgmi", max(1, count), METHOD, gbs=gbs, state="up")


def _matrix(devices: Sequence[str], joined: set[tuple[str, str]]) -> Matrix:
    """Return the matrix of pairs that xGMI joins; PCIe paths follow from NUMA nodes."""
    cells = tuple(
        tuple("X" if a == b else "NVL" if {(a, b), (b, a)} & joined else "" for b in devices) for a in devices
    )
    return Matrix("path", tuple(devices), cells, METHOD)
