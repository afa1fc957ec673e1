"""The pieces in which ranks of one host move messages; predictions count on what carries them out."""

from __future__ import annotations

__all__ = ["BOUNCE_BYTES", "FETCHED_BYTES", "TILE_BYTES"]

# A rank of the same host copies a message of so many bytes out of the sender's private memory: one copy
# instead of two. Shorter ones go through a slot: a call into the kernel costs more than their copy.
FETCHED_BYTES = 32 << 10
# On one host a tile of a chunk is sent, added to and sent on while it is in the caches. Shorter ones fit
# closer caches, but the ranks wait for each other more often, which costs most where they share cores.
TILE_BYTES = 512 << 10
# What is fetched of another process at once to be added: less costs more calls into the kernel, more leaves
# the caches.
BOUNCE_BYTES = 128 << 10
