"""Bandwidth tables: GB/s in one direction for links of each generation, kept as data.

The rates are those that NCCL and RCCL use: delivered, not advertised. ``bandwidth.json`` holds the tables,
``bandwidth.schema.json`` their schema. The environment variable CCCTL_BANDWIDTH or an argument names a file
that replaces ``bandwidth.json``.
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
    """One generation of NVLink or xGMI: the maximum of links a GPU, and GB/s a link in one direction.

    ``gbs`` is the delivered rate, ``wire_gbs`` the advertised one (0 if the generation is unknown).
    """

    version: str
    gbs: float
    wire_gbs: float
    most: int


@dataclass(frozen=True)
class CpuLink:
    """GB/s one way between NUMA nodes, for CPU models from ``model_from`` on; "" and 0 match any."""

    arch: str
    vendor: str
    model_from: int
    gbs: float


@dataclass(frozen=True)
class Bandwidths:
    """The tables: PCIe by GT/s ("16"), NVLink and xGMI by GPU architecture ("sm_90", "gfx942").

    The first matching entry of ``cpu_links`` applies to a CPU. Transfers between GPUs through Intel CPUs
    occupy PCIe links ``intel_peer_overhead`` times as long, because these CPUs split them into small packets.
    ``sources`` cites the origin of the rates.
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
        """Return GB/s of a PCIe link; None if the speed is unknown. A width of 0 counts as unknown."""
        per_lane = None if speed_gts is None else self.pcie_gbs_per_lane.get(f"{speed_gts:g}")
        return None if per_lane is None else per_lane * (width or self.pcie_lanes_if_unknown)

    def pcie_gbs_of_wire(self, raw_gbs: float) -> float | None:
        """Return the delivered GB/s of a PCIe link from its raw GB/s; None if no speed fits.

        A speed fits if ``raw_gbs`` is its rate without encoding overhead on 1, 2, 4, 8, 16 or 32 lanes.
        Encoding is 8b/10b up to 5 GT/s and 128b/130b above.
        """
        for speed, per_lane in self.pcie_gbs_per_lane.items():
            lane_gbs = float(speed) / 8 * (0.8 if float(speed) < 8 else 128 / 130)
            lanes = raw_gbs / lane_gbs
            if round(lanes) in (1, 2, 4, 8, 16, 32) and abs(lanes - round(lanes)) < 0.01 * lanes:
                return per_lane * round(lanes)
        return None

    def cpu_gbs(self, arch: str, vendor: str, model: int | None) -> float | None:
        """Return GB/s between two NUMA nodes of such a CPU; None if the tables lack the CPU."""
        for link in self.cpu_links:
            if link.arch in ("", arch) and link.vendor in ("", vendor) and link.model_from <= (model or 0):
                return link.gbs
        return None

    def fabric(self, kind: str, arch: str, version: str = "") -> FabricGeneration:
        """Return the generation of ``kind`` ("nvlink", "xgmi") by GPU architecture, else by version."""
        known, otherwise = self.nvlink, self.nvlink_if_unknown
        if kind == "xgmi":
            known, otherwise = self.xgmi, self.xgmi_if_unknown
        alike = (generation for generation in known.values() if version and generation.version == version)
        return known.get(arch) or next(alike, otherwise)


def load(path: Path | None = None) -> Bandwidths:
    """Load the tables of ``path``, else of $CCCTL_BANDWIDTH, else the shipped tables.

    Raises MissingInputError if there is no such file, and DataError if it is malformed.
    """
    return _load(path or Path(os.environ.get(OVERRIDE) or _SHIPPED))


@lru_cache(maxsize=4)
def _load(path: Path) -> Bandwidths:
    import msgspec

    try:
        return msgspec.json.decode(read_bytes(path, _MOST_BYTES), type=Bandwidths)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(str(path), [f"bandwidth tables: {error}"]) from error
