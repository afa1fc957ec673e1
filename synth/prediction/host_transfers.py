"""The pieces in which ranks of one host move messages, for executors and for predictions."""

from __future__ import annotations

__all__ = ["BOUNCE_BYTES", "FETCHED_BYTES", "TILE_BYTES"]

# From this size on a rank of the same host copies a message out of the sender's private memory: one copy
# instead of two. Shorter ones go through a slot: a call into the kernel costs more than their copy.
FETCHED_BYTES = 32 << 10
# On one host a tile of a chunk is sent, added to and sent on while it is in the caches. Shorter tiles fit
# closer caches, but ranks wait for each other more often, which costs most where they share cores.
TILE_BYTES = 512 << 10
# Bytes fetched at once from another process to be added: fewer cost more calls into the kernel, more leave
# the caches.
BOUNCE_BYTES = 128 << 10
