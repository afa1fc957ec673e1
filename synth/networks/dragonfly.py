"""Dragonfly: groups of ranks, each fully connected, with one global link between every two groups."""

from __future__ import annotations

from collections.abc import Iterator

from synth.network import Link

__all__ = ["count", "links"]


def count(groups: int, ranks: int) -> int:
    """How many links there are: local ones, then one global link an ordered pair of groups."""
    return groups * ranks * (ranks - 1) + groups * (groups - 1)


def links(
    groups: int, ranks: int, alpha_s: tuple[float, float], beta_s_per_byte: tuple[float, float]
) -> Iterator[Link]:
    """Local links, then global ones, with the costs of either.

    The global links of a group are dealt out to its ranks in turn; both directions join the same two.
    """
    for group in range(groups):
        first = group * ranks
        for a in range(ranks):
            for b in range(ranks):
                if a != b:
                    yield Link(first + a, first + b, alpha_s[0], beta_s_per_byte[0])
    for group in range(groups):
        for other in range(groups):
            if group != other:
                src = group * ranks + (other - group - 1) % groups % ranks
                dst = other * ranks + (group - other - 1) % groups % ranks
                yield Link(src, dst, alpha_s[1], beta_s_per_byte[1])
