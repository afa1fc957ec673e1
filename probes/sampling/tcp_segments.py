"""Counts of the TCP segments that this host has sent and retransmitted, from Linux's /proc/net/snmp."""

from __future__ import annotations

import contextlib
from pathlib import Path

__all__ = ["sent_and_retransmitted"]

# Counts of the process's network namespace: a line of names, then a line of values (RFC 4022).
_SNMP = Path("/proc/self/net/snmp")


def sent_and_retransmitted(snmp: Path = _SNMP) -> tuple[int, int]:
    """Return (all segments sent, retransmissions among them) since boot; zeros if they are not counted."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        lines = [line.split() for line in snmp.read_text(encoding="ascii").splitlines()]
        names, values = (words[1:] for words in lines if words[:1] == ["Tcp:"])
        counted = dict(zip(names, map(int, values), strict=True))
        # OutSegs excludes retransmissions.
        return counted["OutSegs"] + counted["RetransSegs"], counted["RetransSegs"]
    return 0, 0
