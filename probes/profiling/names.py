"""Names of ranks and links, as short as the hosts of a profile allow."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["Names"]


class Names:
    """Names of ranks and links: by host if each has one rank, by number on a single host."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self._hosts = hosts
        self._alone = len(set(hosts)) == len(hosts)
        self._one_host = len(set(hosts)) == 1

    def rank(self, rank: int) -> str:
        if self._one_host:
            return f"rank {rank}"
        return self._hosts[rank] if self._alone else f"rank {rank} ({self._hosts[rank]})"

    def link(self, src: int, dst: int) -> str:
        return f"{src} → {dst}" if self._one_host else f"{self.rank(src)} → {self.rank(dst)}"
