"""Costs of collectives and iterations in closed form: DeAR's equations 3 to 6.

Sizes are of the whole gradient on a rank. As in the paper, reduce_scatter overlaps with the backward pass and
all_gather with the forward pass.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["RingCosts", "speedup_max"]


@dataclass(frozen=True)
class RingCosts:
    """A ring whose step of n bytes takes ``alpha_s`` + n · ``beta_s_per_byte`` (Sec. III-A)."""

    ranks: int
    alpha_s: float
    beta_s_per_byte: float

    def reduce_scatter_s(self, size_bytes: float) -> float:
        """Return the time of a reduce_scatter (equation 3)."""
        return (self.ranks - 1) * (self.alpha_s + size_bytes / self.ranks * self.beta_s_per_byte)

    def all_gather_s(self, size_bytes: float) -> float:
        """Return the time of an all_gather (equation 4)."""
        return self.reduce_scatter_s(size_bytes)

    def all_reduce_s(self, size_bytes: float) -> float:
        """Return the time of an all_reduce (equation 5)."""
        return self.reduce_scatter_s(size_bytes) + self.all_gather_s(size_bytes)

    @property
    def startup_s(self) -> float:
        """The time of an all_reduce of no bytes."""
        return self.all_reduce_s(0)

    @property
    def negotiation_s(self) -> float:
        """Time for all ranks to agree on a tensor: to a root and back along a binary tree."""
        return 2 * (self.ranks - 1).bit_length() * self.alpha_s


def speedup_max(
    ranks: int, forward_s: float, backward_s: float, reduce_scatter_s: float, all_gather_s: float
) -> float:
    """Return the best speed-up over one rank if both halves of all_reduce overlap (equation 6)."""
    compute_s = forward_s + backward_s
    exposed_s = reduce_scatter_s + all_gather_s
    exposed_s -= min(reduce_scatter_s, backward_s) + min(all_gather_s, forward_s)
    return ranks * compute_s / (compute_s + exposed_s)
