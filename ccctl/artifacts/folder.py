"""All artifacts in folders and files: those that can be read, and why the others cannot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ccctl.artifacts.codec import Artifact
from ccctl.artifacts.files import is_folder
from ccctl.artifacts.foreign import is_log, read_any
from ccctl.errors import CcctlError, DataError, MissingInputError, WrongResultsError
from probes.base import first_of

__all__ = ["Gathered", "Unread", "gather"]

_ENDINGS = (".json", ".json.gz", ".xml", ".xml.gz")
# Suffixes of text files that tools write; text files with other suffixes are not looked at.
_TEXTS = (".txt", ".log", ".out")
_MOST_NAMED = 2


@dataclass(frozen=True)
class Unread:
    """A file that could not be read, and why; ``wrong`` if the results measured in it are wrong."""

    source: str
    reason: str
    wrong: bool = False


@dataclass(frozen=True)
class Gathered:
    """The artifacts that were read, in the order of their names, and the files that could not be read."""

    artifacts: tuple[Artifact, ...]
    unread: tuple[Unread, ...]


def gather(paths: Sequence[str]) -> Gathered:
    """Read each file, and in each folder the files whose names end like an artifact's.

    A text file in a folder is read if a benchmark wrote it, and skipped otherwise. Raises MissingInputError
    if a path does not exist, or if there is nothing to read.
    """
    artifacts: list[Artifact] = []
    unread: list[Unread] = []
    for path in paths:
        inside = is_folder(path)
        for file in _files(path) if inside else [path]:
            try:
                artifacts.append(read_any(file))
            except MissingInputError as error:
                if not inside:
                    raise
                unread.append(Unread(file, error.message.removeprefix(f"{file}: ")))
            except DataError as error:
                if not inside or not file.endswith(_TEXTS) or is_log(file):
                    reason = "; ".join(first_of(error.problems, _MOST_NAMED, "problem"))
                    unread.append(Unread(file, reason, wrong=isinstance(error, WrongResultsError)))
            except CcctlError as error:
                unread.append(Unread(file, error.message.removeprefix(f"{file}: ")))
    if not artifacts and not unread:
        raise MissingInputError(
            f"{', '.join(paths)}: there is no artifact",
            hint="ccctl detect, profile, synth and bench write them",
        )
    return Gathered(tuple(artifacts), tuple(unread))


def _files(folder: str) -> list[str]:
    try:
        entries = sorted(entry for entry in Path(folder).iterdir() if not entry.name.startswith("."))
        return [str(entry) for entry in entries if entry.name.endswith(_ENDINGS + _TEXTS) and entry.is_file()]
    except OSError as error:
        raise MissingInputError(f"{folder}: {error.strerror}") from error
