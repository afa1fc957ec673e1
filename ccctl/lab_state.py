"""What the machine knows of the labs that are up: a folder for each, which lasts until the next boot."""

from __future__ import annotations

import shutil
from pathlib import Path

from ccctl.atomic import write_atomically
from ccctl.errors import CannotWriteError, UsageError
from exec.lab import standing
from exec.lab_network import Lab

__all__ = ["chosen", "forget", "known", "login_path", "remember"]

# Namespaces are root's and end with the boot: so does this folder.
_FOLDER = Path("/run/ccctl/labs")


def remember(lab: Lab, login: str) -> None:
    """Keep ``lab`` and the script that logs in to its hosts; raises CannotWriteError."""
    import msgspec

    place = _FOLDER / lab.name
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotWriteError(f"{place}: {error.strerror}") from error
    script = login_path(lab.name)
    write_atomically(script, login.encode())
    script.chmod(0o755)
    write_atomically(place / "lab.json", msgspec.json.format(msgspec.json.encode(lab), indent=1) + b"\n")


def login_path(name: str) -> Path:
    """Where the script is that logs in to the hosts of a lab."""
    return _FOLDER / name / "login"


def known() -> list[str]:
    """The names of the labs that are up, in order."""
    names = sorted(path.parent.name for path in _FOLDER.glob("*/lab.json"))
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
    return msgspec.json.decode((_FOLDER / found / "lab.json").read_bytes(), type=Lab)


def forget(name: str) -> None:
    """Remove what is known of a lab; nothing happens where nothing is."""
    shutil.rmtree(_FOLDER / name, ignore_errors=True)
