"""Where ccctl starts: first that the packages it will import are its own, then the command line."""

from __future__ import annotations

import os
import sys

from ccctl.shadow import shadowed


def main() -> None:
    """Run the command line in this process and exit with its status."""
    if problem := shadowed():
        sys.stderr.write(f"ccctl: {problem}\n")
        sys.exit(os.EX_CONFIG)
    try:
        from ccctl.main import main as command_line
    except KeyboardInterrupt:
        sys.stderr.write("ccctl: interrupted\n")
        sys.exit(130)
    command_line()


if __name__ == "__main__":
    main()
