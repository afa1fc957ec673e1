"""The sizes in the name of a network, ``4x4x4``, limited before anything of that size is allocated."""

from __future__ import annotations

import math

from probes.base import UsageError, whole
from synth.collective import MOST_RANKS

__all__ = ["MOST_LINKS", "parse_dimensions", "require_links", "require_ranks"]

# Larger networks are refused before their arrays fill the memory.
MOST_LINKS = 1 << 22
# Sixteen sizes of 2 already make MOST_RANKS; the others leave room for sizes of 1.
_MOST_DIMENSIONS = 32
# The most characters of a name that a message quotes.
_SHOWN = 60


def parse_dimensions(spec: str, text: str, example: str) -> list[int]:
    """Return the sizes of ``4x4x4``; raise UsageError if their product exceeds ``MOST_RANKS``."""
    words = text.lower().split("x")
    sizes = [whole(word, 0, 1 << 62) for word in words]
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes) or len(sizes) > _MOST_DIMENSIONS:
        more = f", at most {_MOST_DIMENSIONS} of them" if len(sizes) > _MOST_DIMENSIONS else ""
        raise UsageError(
            f"network {_cut(spec)}: expected sizes such as {example}{more}, found {_cut(text)!r}"
        )
    if min(known) < 1:
        raise UsageError(f"network {spec}: a network needs at least two ranks")
    require_ranks(spec, math.prod(known))
    return known


def require_ranks(spec: str, ranks: int) -> None:
    """Raise UsageError if a network has more ranks than the limit."""
    if ranks > MOST_RANKS:
        raise UsageError(f"network {_cut(spec)}: {ranks} ranks are more than the {MOST_RANKS} that fit")


def require_links(spec: str, links: int) -> None:
    """Raise UsageError if a network has more links than the limit."""
    if links > MOST_LINKS:
        raise UsageError(f"network {spec}: {links} links are more than the {MOST_LINKS} that fit")


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
