"""How many TCP segments a host has sent, and how many of them once more, as Linux counts them."""

from __future__ import annotations

import contextlib
from pathlib import Path

__all__ = ["sent_and_again"]

# Of the network namespace of the process: a line of names, then one of values (RFC 4022, tcpOutSegs).
_SNMP = Path("/proc/self/net/snmp")


def sent_and_again(snmp: Path = _SNMP) -> tuple[int, int]:
    """(segments sent, segments sent again) since the host is up; zeros where the kernel counts none."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        lines = [line.split() for line in snmp.read_text(encoding="ascii").splitlines()]
        names, values = (words[1:] for words in lines if words[:1] == ["Tcp:"])
        counted = dict(zip(names, map(int, values), strict=True))
        return counted["OutSegs"] + counted["RetransSegs"], counted["RetransSegs"]
    return 0, 0
