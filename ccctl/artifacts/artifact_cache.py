"""Artifacts that commands and training jobs make for themselves, kept in the user's cache folder by key.

An artifact that anybody but the user and root could have written is made anew.
"""

from __future__ import annotations

import hashlib
import json
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
from probes.files import FileCache, user_folder

__all__ = ["ArtifactCache", "Cached"]

# Older artifacts are deleted so that the folder cannot grow for ever; they can be made anew.
_MOST_AGE_S = 30 * 86_400.0


@dataclass(frozen=True)
class Cached:
    """An artifact of the cache, and for how many seconds it has been there."""

    artifact: Artifact
    age_s: float


class ArtifactCache:
    """The artifacts that this user's processes have kept; those older than 30 days are deleted."""

    def __init__(self) -> None:
        self._files = FileCache(
            user_folder("artifacts"),
            "profiles and schedules",
            "they are made anew each time",
            _MOST_AGE_S,
        )

    def path(self, kind: str, key: Mapping[str, object]) -> Path | None:
        """Return the path for the artifact of a key; None if nothing is cached."""
        return self._files.path(_named(kind, key)[0])

    def read(self, kind: str, key: Mapping[str, object]) -> Cached | None:
        """Return the artifact that was kept under a key; None if there is none, or if it cannot be read."""
        name, label = _named(kind, key)
        path = self._files.path(name)
        if path is None or (content := self._files.read(name, label)) is None:
            return None
        with suppress(OSError, DataError):
            age_s = max(0.0, time.time() - path.stat().st_mtime)
            return Cached(codec.decode(content, str(path), kind), age_s)
        return None

    def keep(
        self, kind: str, key: Mapping[str, object], body: Any, inputs: Mapping[str, str] | None = None
    ) -> Artifact:
        """Write an artifact to the cache if possible; return it as `read` would."""
        name, label = _named(kind, key)
        content = codec.encode(kind, body, inputs)
        self._files.write(name, label, content)
        return Artifact(kind, body, name, hashlib.sha256(content).hexdigest())


def _named(kind: str, key: Mapping[str, object]) -> tuple[str, bytes]:
    """Return the file name of a key, and a label to store in the file, because keys may share a name."""
    label = json.dumps({"ccctl": __version__, "kind": kind, **key}, sort_keys=True, default=str).encode()
    return f"{kind}-{hashlib.sha256(label).hexdigest()[:16]}", label
