"""Who reaches whom on a host: over what, and with how many GB/s."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ccctl import console
from probes.paths.bandwidth import load
from probes.paths.expected import Expected
from probes.paths.path_type import MEANING, Paths, key_of
from probes.topology import Gpu, Host, Nic

__all__ = ["draw_reach", "labels_of"]


def labels_of(host: Host) -> Mapping[str, str]:
    """GPU<index> by bus id and NIC<n> by name."""
    gpus = {gpu.bus_id: f"GPU{gpu.index}" for gpu in host.gpus}
    return {**gpus, **{nic.name: f"NIC{number}" for number, nic in enumerate(host.physical_nics)}}


def draw_reach(host: Host) -> None:
    """Who reaches whom over what: GPUs to GPUs and NICs, or among NICs where there is no GPU."""
    labels, paths = labels_of(host), Paths(host)
    rows: list[Gpu | Nic] = [*host.gpus] or [*host.physical_nics]
    columns: list[Gpu | Nic] = [*host.gpus, *host.physical_nics]
    if len(columns) < 2:
        return
    names = [labels[key_of(device)] for device in columns]
    cells = [[labels[key_of(row)], *(paths.between(row, column) for column in columns)] for row in rows]
    console.data("")
    console.table(["", *names], cells)
    seen = {cell for row in cells for cell in row[1:]}
    console.data("; ".join(f"{word} {text}" for word, text in MEANING.items() if word in seen))
    _expectations(host, rows, columns)


def _expectations(host: Host, rows: Sequence[Gpu | Nic], columns: Sequence[Gpu | Nic]) -> None:
    """What each of those ways should carry."""
    labels, expected = labels_of(host), Expected(host, load())
    words = [[_expectation(expected, row, column) for column in columns] for row in rows]
    if not host.gpus or not any(word for row in words for word in row):
        return
    lines = [[labels[key_of(row)], *line] for row, line in zip(rows, words, strict=True)]
    console.data("")
    console.table(["GB/s", *(labels[key_of(device)] for device in columns)], lines)
    relayed = any(word.endswith("+") for row in words for word in row)
    more = "; + more over NVLink and a GPU that is nearer (PXN)" if relayed else ""
    console.data(f"expected one way, as links deliver; nothing stands where nothing is known{more}")


def _expectation(expected: Expected, a: Gpu | Nic, b: Gpu | Nic) -> str:
    gbs = expected.between(a, b).gbs
    if gbs is None:
        return ""
    over = expected.over_peer(a, b) if isinstance(a, Gpu) and isinstance(b, Nic) else None
    return f"{gbs:.4g}" + ("+" if over is not None and (over.gbs or 0) > 1.1 * gbs else "")
