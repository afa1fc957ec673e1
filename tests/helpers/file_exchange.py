"""Files in a folder, by which ranks of tests meet. Each rank imports this, so it loads little."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["KEY", "exchange_through"]

KEY = bytes(range(32))
_PATIENCE_S = 200


def exchange_through(folder: str, rank: int, size: int) -> Callable[[bytes], list[bytes]]:
    """An all-gather of bytes through files."""
    rounds = iter(range(1000))

    def exchange(said: bytes) -> list[bytes]:
        number = next(rounds)
        mine = Path(folder, f"{number}.{rank}.part")
        mine.write_bytes(said)
        mine.rename(mine.with_suffix(""))
        found, deadline_s = [], time.monotonic() + _PATIENCE_S
        for other in range(size):
            there = Path(folder, f"{number}.{other}")
            while not there.exists():
                if time.monotonic() > deadline_s:
                    raise TimeoutError(f"rank {other} said nothing")
                time.sleep(0.005)
            found.append(there.read_bytes())
        return found

    return exchange
