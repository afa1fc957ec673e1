"""Artifacts that commands make for themselves, kept in the user's cache folder, each under a key.

They are read by the rules of the compiled loops: only where nobody but the user and root could have written
them. None is needed: what cannot be read is made anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ccctl import __version__
from ccctl.artifacts import codec
from ccctl.artifacts.codec import Artifact
from ccctl.errors import DataError
from synth.kernels.loop_store import LoopStore, distrusted

__all__ = ["ArtifactCache", "Cached", "cache_folder"]


@dataclass(frozen=True)
class Cached:
    """An artifact of the cache, and for how many seconds it has been there."""

    artifact: Artifact
    age_s: float


def cache_folder() -> Path | None:
    """``$XDG_CACHE_HOME/ccctl/bench``, else ``~/.cache/ccctl/bench``; None where there is no home."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not Path(base).is_absolute():
        base = os.path.expanduser("~/.cache")  # noqa: PTH111 - Path.home() raises where there is no home
    return Path(base) / "ccctl" / "bench" if Path(base).is_absolute() else None


class ArtifactCache:
    """The artifacts in one folder; None, and a folder that others could change, keep nothing."""

    def __init__(self, folder: Path | None) -> None:
        self.problem = _problem(folder)
        self.folder = None if self.problem else folder
        self._store = LoopStore(self.folder) if self.folder is not None else None

    def read(self, kind: str, key: Mapping[str, object]) -> Cached | None:
        """The artifact that was kept under a key; None where there is none, or none that can be read."""
        name, label = _named(kind, key)
        if self._store is None or self.folder is None or (content := self._store.read(name, label)) is None:
            return None
        path = self.folder / name
        with suppress(OSError, DataError):
            age_s = max(0.0, time.time() - path.stat().st_mtime)
            return Cached(codec.decode(content, str(path), kind), age_s)
        return None

    def keep(
        self, kind: str, key: Mapping[str, object], body: Any, inputs: Mapping[str, str] | None = None
    ) -> Artifact:
        """Keep an artifact under a key, where that can be; the same as `read` will give it."""
        name, label = _named(kind, key)
        content = codec.encode(kind, body, inputs)
        if self._store is not None:
            self._store.write(name, label, content)
        return Artifact(kind, body, name, hashlib.sha256(content).hexdigest())


def _problem(folder: Path | None) -> str:
    """Why nothing is kept; "" where it is."""
    if folder is None:
        return "there is no home directory"
    try:
        return distrusted(folder)
    except OSError as error:
        return f"{folder}: {error.strerror}"


def _named(kind: str, key: Mapping[str, object]) -> tuple[str, bytes]:
    """The file of a key, and what stands in it so that another key of the same name is not taken for it."""
    label = json.dumps({"ccctl": __version__, "kind": kind, **key}, sort_keys=True, default=str).encode()
    return f"{kind}-{hashlib.sha256(label).hexdigest()[:16]}", label
