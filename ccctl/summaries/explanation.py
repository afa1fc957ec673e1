"""An explained path as text: its parts, its bandwidth, and the reasons for its limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ccctl import console

if TYPE_CHECKING:
    from probes.paths import Explanation

__all__ = ["draw"]


def draw(why: Explanation) -> None:
    """Print the verdict, the parts in the order of the data, and the reasons."""
    console.data(f"{why.a} to {why.b}: {why.path}, {why.meaning}")
    for line in console.aligned(
        ["", "", ""], [("", step.what, step.name + _after(step.link)) for step in why.steps]
    )[1:]:
        console.data(line)
    if why.gbs is not None:
        console.data(f"expected: {why.gbs:.4g} GB/s in one direction, limited by {why.limit}")
    elif why.path != "LOC":
        console.data("expected: unknown, as no part of the way states its speed")
    for reason in why.reasons:
        console.data(f"because {reason}")


def _after(link: str) -> str:
    return f"  {link}" if link else ""
