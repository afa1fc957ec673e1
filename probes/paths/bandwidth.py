"""What links of each generation carry: tables of GB/s in one direction, kept as data.

The figures are those that NCCL and RCCL reckon with (what a link delivers, below what it is sold
as). ``bandwidth.json`` holds them, ``bandwidth.schema.json`` its shape; the file that the variable
CCCTL_BANDWIDTH names, or an argument, replaces it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from probes.base import DataError
from probes.files import read_bytes

__all__ = ["OVERRIDE", "Bandwidths", "CpuLink", "FabricGeneration", "load"]

OVERRIDE = "CCCTL_BANDWIDTH"
_MOST_BYTES = 1 << 20
_SHIPPED = Path(__file__).with_name("bandwidth.json")


@dataclass(frozen=True)
class FabricGeneration:
    """One generation of NVLink or xGMI: the most links a GPU can have, and GB/s of one of them one way.

    ``gbs`` is what it delivers, ``wire_gbs`` what it is sold as (0 where the generation is unknown).
    """

    version: str
    gbs: float
    wire_gbs: float
    most: int


@dataclass(frozen=True)
class CpuLink:
    """GB/s one way between the NUMA nodes of CPUs from ``model_from`` on; "" and 0 fit any."""

    arch: str
    vendor: str
    model_from: int
    gbs: float


@dataclass(frozen=True)
class Bandwidths:
    """The tables: PCIe by GT/s ("16"), NVLink and xGMI by GPU architecture ("sm_90", "gfx942").

    In ``cpu_links`` the first that fits a CPU is its own. ``intel_peer_overhead``: Intel's CPUs cut
    what one GPU sends another into small packets, which takes that much more of the links. ``sources``
    says where figures are from.
    """

    pcie_gbs_per_lane: dict[str, float]
    pcie_lanes_if_unknown: int
    cpu_links: tuple[CpuLink, ...]
    intel_peer_overhead: float
    nvlink: dict[str, FabricGeneration]
    nvlink_if_unknown: FabricGeneration
    xgmi: dict[str, FabricGeneration]
    xgmi_if_unknown: FabricGeneration
    most_nic_mbit: int
    sources: dict[str, str] = field(default_factory=dict)

    def pcie_gbs(self, speed_gts: float | None, width: int | None) -> float | None:
        """GB/s of a PCIe link; None where the speed is unknown. A width of 0 counts as unknown."""
        per_lane = None if speed_gts is None else self.pcie_gbs_per_lane.get(f"{speed_gts:g}")
        return None if per_lane is None else per_lane * (width or self.pcie_lanes_if_unknown)

    def pcie_gbs_of_wire(self, raw_gbs: float) -> float | None:
        """GB/s that a link delivers whose speed on the wire is all that is known.

        Up to 5 GT/s eight bits travel as ten, from then on 128 as 130: which of the two it was shows in
        the number.
        """
        for speed, per_lane in self.pcie_gbs_per_lane.items():
            lane_gbs = float(speed) / 8 * (0.8 if float(speed) < 8 else 128 / 130)
            lanes = raw_gbs / lane_gbs
            if round(lanes) in (1, 2, 4, 8, 16, 32) and abs(lanes - round(lanes)) < 0.01 * lanes:
                return per_lane * round(lanes)
        return None

    def cpu_gbs(self, arch: str, vendor: str, model: int | None) -> float | None:
        """GB/s between two NUMA nodes of such a CPU; None where the tables do not have it."""
        for link in self.cpu_links:
            if link.arch in ("", arch) and link.vendor in ("", vendor) and link.model_from <= (model or 0):
                return link.gbs
        return None

    def fabric(self, kind: str, arch: str, version: str = "") -> FabricGeneration:
        """The generation of ``kind`` ("nvlink", "xgmi") of this architecture's GPUs, else of this version."""
        known, otherwise = self.nvlink, self.nvlink_if_unknown
        if kind == "xgmi":
            known, otherwise = self.xgmi, self.xgmi_if_unknown
        alike = (generation for generation in known.values() if version and generation.version == version)
        return known.get(arch) or next(alike, otherwise)


def load(path: Path | None = None) -> Bandwidths:
    """The tables of ``path``, else of $CCCTL_BANDWIDTH, else those shipped.

    Raises MissingInputError where there is no such file and DataError where it does not fit.
    """
    return _load(path or Path(os.environ.get(OVERRIDE) or _SHIPPED))


@lru_cache(maxsize=4)
def _load(path: Path) -> Bandwidths:
    import msgspec

    try:
        return msgspec.json.decode(read_bytes(path, _MOST_BYTES), type=Bandwidths)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(str(path), [f"bandwidth tables: {error}"]) from error
