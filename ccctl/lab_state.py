"""What the machine knows of the labs that are up: a folder for each, which lasts until the next boot."""

from __future__ import annotations

import shutil
from pathlib import Path

from ccctl.atomic import write_atomically
from ccctl.errors import CannotWriteError, UsageError
from exec.lab import standing
from exec.lab_network import Lab
from exec.lab_run import files

__all__ = ["chosen", "folder", "forget", "known", "remember"]

# Namespaces are root's and end with the boot: so does this folder.
_FOLDER = Path("/run/ccctl/labs")
_STATE = "lab.json"


def remember(lab: Lab) -> None:
    """Keep ``lab`` and the files that a command inside it needs; raises CannotWriteError."""
    import msgspec

    place = folder(lab.name)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotWriteError(f"{place}: {error.strerror}") from error
    for name, content in files(lab).items():
        write_atomically(place / name, content.encode())
        (place / name).chmod(0o755 if content.startswith("#!") else 0o644)
    write_atomically(place / _STATE, msgspec.json.format(msgspec.json.encode(lab), indent=1) + b"\n")


def folder(name: str) -> Path:
    """Where what is known of a lab is kept."""
    return _FOLDER / name


def known() -> list[str]:
    """The names of the labs that are up, in order."""
    names = sorted(path.parent.name for path in _FOLDER.glob(f"*/{_STATE}"))
    return [name for name in names if standing(name)]


def chosen(name: str | None) -> Lab:
    """The lab of that name, or the only one; raises UsageError where that is not one."""
    import msgspec

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
    return msgspec.json.decode((folder(found) / _STATE).read_bytes(), type=Lab)


def forget(name: str) -> None:
    """Remove what is known of a lab; nothing happens where nothing is."""
    shutil.rmtree(folder(name), ignore_errors=True)
