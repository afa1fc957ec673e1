"""Topologies as people name them: files of other tools, recordings, artifacts."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ccctl.artifacts import Artifact, codec, exists, is_folder, read_input
from probes.files import inflated
from probes.smi import is_json

if TYPE_CHECKING:
    from probes.topology import Topology

__all__ = ["LINK_LISTS", "read_or_described", "read_topologies", "topology_in"]

# Suffixes of lists of links.
LINK_LISTS = (".csv", ".links")


def read_or_described(name: str, *kinds: str) -> Artifact:
    """Return an artifact of one of ``kinds``, or the topology that a file describes; - is stdin.

    Raises DataError for what is none of them.
    """
    if name != "-" and is_folder(name):
        topology, source, content = read_topologies([name]), name, name.encode(errors="replace")
    else:
        content, source = read_input(name)
        if not content.strip() or _is_artifact(content, source):
            return codec.decode(content, source, *kinds)
        from probes.detection import from_file

        topology = from_file(inflated(content, source), source)
    return Artifact("topology", topology, source, hashlib.sha256(content).hexdigest())


def topology_in(name: str) -> Topology | None:
    """Return the topology in a file that `--network` names; None for another network, and for stdin."""
    if not exists(name) or name.endswith(LINK_LISTS):
        return None
    found = read_or_described(name, "topology", "profile", *codec.SCHEDULE_KINDS)
    return found.body if found.kind == "topology" else None


def _is_artifact(content: bytes, source: str) -> bool:
    content = inflated(content, source)
    # A byte order mark may come first, and UTF-16 has a zero byte in each letter of ASCII.
    start = content[:16].replace(b"\0", b"").lstrip(b"\xef\xbb\xbf\xff\xfe \t\r\n")
    return start.startswith(b"{") and not is_json(content)


def read_topologies(names: Sequence[str], *, live: bool = False) -> Topology:
    """Return the topology of these files, several of one machine merged into one; - is stdin.

    With ``live`` this machine is detected, too, and takes precedence over what files say of it.

    Each file is a topology artifact, a file of another tool (by its content), or the folder of a recording.
    Raises DataError for any other content.
    """
    from probes.detection import merge as detection

    whole: list[Topology] = []
    parts: list[Topology] = [detection.look()] if live else []
    for name in names:
        if name != "-" and is_folder(name):
            parts.append(detection.read_recording(Path(name)))
            continue
        content, source = read_input(name)
        if _is_artifact(content, source):
            whole.append(codec.decode(content, source, "topology").body)
        else:
            parts.append(detection.read_file(inflated(content, source), source))
    found = [*([detection.combined(parts)] if parts else []), *whole]
    return found[0] if len(found) == 1 else detection.side_by_side(found)
