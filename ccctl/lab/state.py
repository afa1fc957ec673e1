"""The labs that are up: a folder for each, which lasts until the next boot.

A folder is read or removed only if no other user can have written it and it holds only ccctl's files. Only
``folder`` makes a path from a name, and it refuses invalid names.
"""

from __future__ import annotations

from pathlib import Path

from ccctl.artifacts import PART, write_atomically
from ccctl.errors import CannotWriteError, DataError, UnavailableError, UsageError
from exec.lab import FILES, RUN, Lab, files, refuse_name, standing
from probes.files import ownership

__all__ = ["chosen", "folder", "forget", "known", "refuse_foreign", "remember"]

# Network namespaces belong to root and are gone after a reboot; so is this folder.
_FOLDER = Path("/run/ccctl/labs")
_STATE = "lab.json"


def remember(lab: Lab) -> None:
    """Keep ``lab`` and the files that a command inside it needs.

    Raises CannotWriteError, and UnavailableError where others can write to the folder.
    """
    import msgspec

    place = folder(lab.name)
    try:
        ownership.make(place)
    except OSError as error:
        raise CannotWriteError(f"{place}: {error.strerror}") from error
    for name, content in files(lab).items():
        write_atomically(place / name, content.encode(), 0o755 if content.startswith("#!") else 0o644)
    state = msgspec.json.format(msgspec.json.encode(lab), indent=1) + b"\n"
    write_atomically(place / _STATE, state, 0o644)


def folder(name: str) -> Path:
    """Return the path of the folder of a lab; raises UsageError for an invalid name."""
    refuse_name(name)
    return _FOLDER / name


def known() -> list[str]:
    """Return the names of the labs that are up, in order."""
    names = []
    for path in _FOLDER.glob(f"*/{_STATE}"):
        try:
            if standing(path.parent.name):
                names.append(path.parent.name)
        except UsageError:
            continue
    return sorted(names)


def chosen(name: str | None) -> Lab:
    """Return the lab of that name, or the only one if it is None; raises UsageError otherwise."""
    if name is not None:
        refuse_name(name)
    names = known()
    if name is None and len(names) != 1:
        listed = f"labs {', '.join(names)} are" if names else "no lab is"
        raise UsageError(
            f"expected one lab that is up, but {listed}",
            hint="Choose one with --lab NAME." if names else "ccctl lab up lab.toml makes one.",
        )
    found = name if name is not None else names[0]
    if found not in names:
        raise UsageError(
            f"there is no lab {found}; up: {', '.join(names) or 'none'}",
            hint="ccctl lab up lab.toml makes one.",
        )
    refuse_foreign(found)
    return _read(found)


def refuse_foreign(name: str) -> None:
    """Raise UnavailableError or DataError if a lab's folder holds what ccctl did not write."""
    place = folder(name)
    if ownership.refuse_foreign(place, _is_ours) and (place / _STATE).exists():
        _read(name)


def forget(name: str) -> None:
    """Remove the folder of a lab that is down; do nothing if there is none.

    Raises UnavailableError where the lab is up, and as ``refuse_foreign`` does.
    """
    if standing(name):
        raise UnavailableError(f"lab {name} is up, so what is known of it is kept")
    refuse_foreign(name)
    ownership.remove(folder(name), _is_ours)


def _read(name: str) -> Lab:
    """Return the lab that ``remember`` stored; raises DataError if its file is not valid."""
    import msgspec

    path = folder(name) / _STATE
    try:
        lab = msgspec.json.decode(path.read_bytes(), type=Lab)
    except (msgspec.MsgspecError, OSError, UsageError, RecursionError) as error:
        raise _wrong_state(path, str(error)) from error
    if lab.name != name:
        raise _wrong_state(path, f"found that of {lab.name!r}")
    return lab


def _wrong_state(path: Path, found: str) -> DataError:
    return DataError(
        str(path),
        [f"expected the state of lab {path.parent.name}: {found}"],
        hint=f"Remove {path.parent} by hand, then ccctl lab down --lab {path.parent.name}.",
    )


def _is_ours(file: str) -> bool:
    return file in (_STATE, *FILES) or bool(PART.fullmatch(file) or RUN.fullmatch(file))
