"""The pieces in which ranks of one host move messages, for executors and for predictions."""

from __future__ import annotations

__all__ = ["BOUNCE_BYTES", "FETCHED_BYTES", "TILE_BYTES"]

# Messages of at least this size are copied out of the sender's private memory: one copy instead of two.
# Shorter ones go through a slot, because a system call costs more than a second copy.
FETCHED_BYTES = 32 << 10
# A chunk moves in tiles, which stay in the caches while they are received, added and sent on. Shorter tiles
# fit closer caches, but ranks wait for each other more often, which costs most if they share cores.
TILE_BYTES = 512 << 10
# Bytes fetched from another process by one system call, to be added. Smaller pieces need more system calls;
# larger ones do not stay in the caches.
BOUNCE_BYTES = 128 << 10
