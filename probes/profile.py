"""What the links of a cluster cost: the profile artifact.

Alpha is the time in flight (s), beta the time a byte holds the link (s/byte). The minimum of many
samples is the link's capability and feeds the model; the median is what it does now.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from probes.columns import Floats, Ints

__all__ = ["HostCopies", "Links", "Profile", "ProfiledRank", "SharedPort"]


@dataclass(frozen=True)
class ProfiledRank:
    """One worker: where it ran and what it drove ("process", "cuda:0")."""

    rank: int
    host: str
    device: str = "process"


@dataclass(frozen=True, eq=False)
class Links:
    """Directed links as columns of equal length, one row a link.

    ``beta_s_per_byte`` is the model's cost (capability); ``beta_median`` and ``beta_p90_s_per_byte``
    what the link did in the middle of its samples and in the worst tenth (alpha alike);
    ``beta_low/high_s_per_byte`` a 95 % bootstrap interval; ``residual`` the relative misfit of
    alpha + beta·bytes; ``samples`` how many messages or trains were timed. ``flags`` holds words joined
    by commas ("" if none): outlier, slow_sender, slow_receiver, asymmetric, nonlinear (a knee between
    sizes), noisy, unsound (no fit that holds), retested (measured again, alone), contended (faster alone).
    """

    src: Ints
    dst: Ints
    alpha_s: Floats
    alpha_median_s: Floats
    alpha_p90_s: Floats
    beta_s_per_byte: Floats
    beta_median_s_per_byte: Floats
    beta_p90_s_per_byte: Floats
    beta_low_s_per_byte: Floats
    beta_high_s_per_byte: Floats
    residual: Floats
    samples: Ints
    flags: tuple[str, ...]


@dataclass(frozen=True)
class SharedPort:
    """A resource that several links share and one transfer uses at a time; ``links`` are row numbers."""

    name: str
    links: tuple[int, ...]
    method: str


@dataclass(frozen=True)
class HostCopies:
    """Copies between the GPU of a rank and pinned memory of its CPU: alpha (s) and beta (s/byte) each way."""

    rank: int
    to_device_alpha_s: float
    to_device_beta_s_per_byte: float
    to_host_alpha_s: float
    to_host_beta_s_per_byte: float


@dataclass(frozen=True, eq=False)
class Profile:
    """Ranks, their directed links, the ports that links share, and how they were measured."""

    ranks: tuple[ProfiledRank, ...]
    links: Links
    ports: tuple[SharedPort, ...]
    transport: Literal["mpi", "cuda"]
    library: str
    seconds: float
    rounds: int
    findings: tuple[str, ...] = ()
    host_copies: tuple[HostCopies, ...] = ()

    def problems(self) -> list[str]:
        """Every inconsistency between the columns, as ``path: what is wrong``."""
        found: list[str] = []
        columns = self.links
        length = len(columns.src)
        for name in Links.__dataclass_fields__:
            if len(getattr(columns, name)) != length:
                found.append(
                    f"links.{name}: expected {length} values like links.src, "
                    f"found {len(getattr(columns, name))}"
                )
        if [entry.rank for entry in self.ranks] != list(range(len(self.ranks))):
            found.append("ranks: expected rank numbers 0, 1, 2, … in order")
        for name in ("src", "dst"):
            for row, rank in enumerate(getattr(columns, name)):
                if not 0 <= rank < len(self.ranks):
                    found.append(f"links.{name}[{row}]: there is no rank {rank}")
        for row, value in enumerate(columns.alpha_s):
            if not 0 <= value < float("inf"):
                found.append(f"links.alpha_s[{row}]: expected a number ≥ 0, found {value}")
        for row, value in enumerate(columns.beta_s_per_byte):
            if not 0 < value < float("inf"):
                found.append(f"links.beta_s_per_byte[{row}]: expected a number > 0, found {value}")
        for index, port in enumerate(self.ports):
            for row in port.links:
                if not 0 <= row < length:
                    found.append(f"ports[{index}].links: there is no link {row}")
        return found
