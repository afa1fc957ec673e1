"""Topologies as people name them: files of other tools, recordings, artifacts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ccctl.artifacts import codec
from ccctl.artifacts.files import is_folder, read_input

if TYPE_CHECKING:
    from probes.topology import Topology

__all__ = ["read_topologies"]

_ARTIFACT = (b"{", b"\x1f\x8b")


def read_topologies(names: Sequence[str], *, live: bool = False) -> Topology:
    """What these files describe: several of one machine merged, other machines beside it; - is stdin.

    With ``live`` this machine is among them, and believed before what is written of it.

    Each is a topology artifact, a file of another tool (by its content), or the folder of a recording.
    Raises DataError for what is none of them.
    """
    from probes.detection import merge as detection

    whole: list[Topology] = []
    parts: list[Topology] = [detection.look()] if live else []
    for name in names:
        if name != "-" and is_folder(name):
            parts.append(detection.read_recording(Path(name)))
            continue
        content, source = read_input(name)
        if content.startswith(_ARTIFACT):
            whole.append(codec.decode(content, source, "topology").body)
        else:
            parts.append(detection.read_file(content, source))
    found = [*([detection.combined(parts)] if parts else []), *whole]
    return found[0] if len(found) == 1 else detection.side_by_side(found)
