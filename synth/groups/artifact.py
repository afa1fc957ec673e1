"""The groups artifact: the ranks that average their parameters together, iteration by iteration (DS-Sync)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from synth.network import Network

__all__ = ["MOST_PERIOD", "MOST_RANKS", "Division", "Groups", "PatternName"]

# A division of all ranks into groups; a rank alone in its group averages with no other.
Division: TypeAlias = tuple[tuple[int, ...], ...]
PatternName: TypeAlias = Literal["representatives", "alternating", "butterfly", "mixed_radix"]

# The most ranks accepted: computing the eigenvalues for this many takes seconds.
MOST_RANKS = 512
# The most iterations of a period, each of which costs a product of matrices.
MOST_PERIOD = 4096
# More than any model has; a larger number in a file is a mistake.
_MOST_BYTES = 1 << 50
_MOST_LAYERS = 1 << 20


@dataclass(frozen=True, eq=False)
class Groups:
    """The divisions of a period, with their rate of consensus and predicted time on ``network``.

    Iteration t averages within each group of ``iterations[t % period]``. The groups were adjusted for
    ``slow_racks`` (numbers of racks) and ``slow_ranks`` (Sec. III-B2 and 3). ``rho`` is the second largest
    modulus of the eigenvalues of the period's product of mixing matrices. ``distance`` is the 2-norm of that
    product minus the matrix that averages all ranks. ``predicted_s`` is the mean time to average
    ``size_bytes`` in ``layers`` messages, over the iterations.
    """

    network: Network
    racks: tuple[tuple[int, ...], ...]
    slow_racks: tuple[int, ...]
    slow_ranks: tuple[int, ...]
    pattern: PatternName
    iterations: tuple[Division, ...]
    size_bytes: int
    layers: int
    rho: float
    distance: float
    predicted_s: float

    @property
    def ranks(self) -> int:
        return self.network.ranks

    @property
    def period(self) -> int:
        return len(self.iterations)

    def group_of(self, rank: int, iteration: int) -> tuple[int, ...]:
        """Return the group of ``rank`` in ``iteration``, including itself."""
        return next(group for group in self.iterations[iteration % self.period] if rank in group)

    def problems(self) -> list[str]:
        """Return every inconsistency, as ``path: what is wrong``; ``synth.check`` judges claimed rates."""
        found = [f"network.{problem}" for problem in self.network.problems()]
        if not 1 <= self.ranks <= MOST_RANKS:
            return [*found, f"network.hosts: expected 1 to {MOST_RANKS} ranks, found {self.ranks}"]
        found += _division_problems("racks", self.racks, self.ranks)
        if not 1 <= self.period <= MOST_PERIOD:
            found.append(f"iterations: expected 1 to {MOST_PERIOD} of them, found {self.period}")
        for row, division in enumerate(self.iterations[:MOST_PERIOD]):
            found += _division_problems(f"iterations[{row}]", division, self.ranks)
        for name, numbers, limit, noun in (
            ("slow_racks", self.slow_racks, len(self.racks), "rack"),
            ("slow_ranks", self.slow_ranks, self.ranks, "rank"),
        ):
            found += [
                f"{name}[{at}]: there is no {noun} {number}"
                for at, number in enumerate(numbers)
                if not 0 <= number < limit
            ]
            if list(numbers) != sorted(set(numbers)):
                found.append(f"{name}: expected rising numbers, each once")
        return found + list(self._number_problems())

    def _number_problems(self) -> Iterator[str]:
        for name, value, most in (
            ("size_bytes", self.size_bytes, _MOST_BYTES),
            ("layers", self.layers, _MOST_LAYERS),
        ):
            if not 1 <= value <= most:
                yield f"{name}: expected an integer from 1 to {most}, found {value}"
        for name, share in (("rho", self.rho), ("distance", self.distance)):
            if not 0 <= share <= 1:
                yield f"{name}: expected a number from 0 to 1, found {share}"
        if not 0 <= self.predicted_s < float("inf"):
            yield f"predicted_s: expected a number ≥ 0, found {self.predicted_s}"


def _division_problems(path: str, division: Division, ranks: int) -> Iterator[str]:
    """Yield a finding for each unknown rank, rank in two groups or in none, and empty group."""
    place: dict[int, str] = {}
    for at, group in enumerate(division):
        if not group:
            yield f"{path}[{at}]: expected at least 1 rank, found none"
        for within, rank in enumerate(group):
            where = f"{path}[{at}][{within}]"
            if not 0 <= rank < ranks:
                yield f"{where}: there is no rank {rank}"
            elif (before := place.setdefault(rank, where)) != where:
                yield f"{where}: rank {rank} is at {before} already"
    left = [rank for rank in range(ranks) if rank not in place]
    if left:
        yield f"{path}: rank {left[0]} is in none" + (f", and {len(left) - 1} more" if left[1:] else "")
