"""The entry point: checks that no foreign file shadows our packages, then runs the command line."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

_STAGES = ("probes", "synth", "exec")


def main() -> None:
    """Run the command line in this process and exit with its status."""
    if problem := _shadowed():
        sys.stderr.write(f"ccctl: {problem}\n")
        sys.exit(os.EX_CONFIG)
    try:
        from ccctl.main import main as command_line
    except KeyboardInterrupt:
        sys.stderr.write("ccctl: interrupted\n")
        sys.exit(130)
    command_line()


def _shadowed() -> str:
    """Return an error message if a foreign file hides one of our packages, else "".

    Looks the packages up without importing them.
    """
    home = Path(__file__).resolve().parents[1]
    for name in _STAGES:
        spec = find_spec(name)
        if spec is None:
            return f"expected the package {name!r} in {home}, found none\nhint: install ccctl again"
        found = Path(spec.origin).resolve() if spec.origin else None
        if found != home / name / "__init__.py":
            return (
                f"expected the package {name!r} of ccctl in {home}, found {found or 'a bare folder'}\n"
                "hint: start the ccctl script or `python -P -m ccctl`, or rename that file"
            )
    return ""


if __name__ == "__main__":
    main()
