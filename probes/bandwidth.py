"""What links of each generation carry: tables of GB/s in one direction, kept as data.

The figures are those that NCCL and RCCL reckon with (what a link delivers, below what it is sold
as). ``bandwidth.json`` holds them, ``bandwidth.schema.json`` its shape; the file that the variable
CCCTL_BANDWIDTH names, or an argument, replaces it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from probes.errors import DataError, MissingInputError

__all__ = ["OVERRIDE", "Bandwidths", "FabricGeneration", "load"]

OVERRIDE = "CCCTL_BANDWIDTH"
_SHIPPED = Path(__file__).with_name("bandwidth.json")


@dataclass(frozen=True)
class FabricGeneration:
    """One generation of NVLink or xGMI: GB/s of a link one way, the most links a GPU can have."""

    version: str
    gbs: float
    most: int


@dataclass(frozen=True)
class Bandwidths:
    """The tables: PCIe by GT/s ("16"), NVLink and xGMI by GPU architecture ("sm_90", "gfx942")."""

    pcie_gbs_per_lane: dict[str, float]
    pcie_lanes_if_unknown: int
    nvlink: dict[str, FabricGeneration]
    nvlink_if_unknown: FabricGeneration
    xgmi: dict[str, FabricGeneration]
    xgmi_if_unknown: FabricGeneration
    most_nic_mbit: int

    def pcie_gbs(self, speed_gts: float | None, width: int | None) -> float | None:
        """GB/s of a PCIe link; None where the speed is unknown. A width of 0 counts as unknown."""
        per_lane = None if speed_gts is None else self.pcie_gbs_per_lane.get(f"{speed_gts:g}")
        return None if per_lane is None else per_lane * (width or self.pcie_lanes_if_unknown)

    def fabric(self, kind: str, arch: str) -> FabricGeneration:
        """The generation of ``kind`` ("nvlink", "xgmi") that GPUs of this architecture have."""
        if kind == "xgmi":
            return self.xgmi.get(arch, self.xgmi_if_unknown)
        return self.nvlink.get(arch, self.nvlink_if_unknown)


def load(path: Path | None = None) -> Bandwidths:
    """The tables of ``path``, else of $CCCTL_BANDWIDTH, else those shipped.

    Raises MissingInputError where there is no such file and DataError where it does not fit.
    """
    return _load(path or Path(os.environ.get(OVERRIDE) or _SHIPPED))


@lru_cache(maxsize=4)
def _load(path: Path) -> Bandwidths:
    import msgspec

    try:
        return msgspec.json.decode(path.read_bytes(), type=Bandwidths)
    except OSError as error:
        raise MissingInputError(f"{path}: bandwidth tables: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise DataError(str(path), [f"bandwidth tables: {error}"]) from error
