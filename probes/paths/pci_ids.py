"""Meaning of PCI ids and classes: GPUs, network cards, bridges, and product names."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from pathlib import Path
from typing import Literal

__all__ = [
    "architecture",
    "architecture_of_model",
    "first_match",
    "gpu_vendor",
    "is_bridge",
    "is_gpu",
    "is_network",
    "is_nvswitch",
    "port_role",
    "product_name",
    "speed_gts",
]

_NVIDIA, _AMD = "0x10de", "0x1002"
_SPEED = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*GT/s")
# Rage XL, RN50 and ES1000: console graphics of servers.
_CONSOLES = {"0x4752", "0x5159", "0x515e", "0x5969"}


def is_gpu(pci_class: str, vendor: str, device: str = "") -> bool:
    """Return whether a function of this class is a GPU that can be a rank.

    A display controller counts if NVIDIA or AMD made it, or if the vendor is unknown (static files). Displays
    of servers' management controllers and old displays by ATI do not count. AMD's accelerators since the
    MI300 have class 0x12 instead.
    """
    if vendor == _AMD and device in _CONSOLES:
        return False
    if pci_class.startswith("0x03"):
        return vendor in (_NVIDIA, _AMD, "")
    return pci_class.startswith("0x1200") and vendor in (_AMD, "")


def is_network(pci_class: str) -> bool:
    """Return whether this class is a network controller; old InfiniBand cards are serial buses (0x0c06)."""
    return pci_class.startswith(("0x02", "0x0c06"))


def is_bridge(pci_class: str) -> bool:
    """Return whether this class is a bridge between PCI buses."""
    return pci_class.startswith("0x0604")


def is_nvswitch(pci_class: str, vendor: str) -> bool:
    """Return whether this function is an NVSwitch, whose class is "other bridge"."""
    return pci_class.startswith("0x0680") and vendor == _NVIDIA


def gpu_vendor(vendor: str) -> Literal["nvidia", "amd", ""]:
    """Return the maker's name for a PCI vendor id."""
    if vendor == _NVIDIA:
        return "nvidia"
    return "amd" if vendor == _AMD else ""


def product_name(vendor: str, device: str) -> str:
    """Return the product name of a device; "" if the table lacks it."""
    return _known(vendor, device)[0]


def architecture(vendor: str, device: str) -> str:
    """Return the architecture of a GPU ("sm_90", "gfx942"); "" if the table lacks it."""
    return _known(vendor, device)[1]


def architecture_of_model(name: str) -> str:
    """Return the architecture of an NVIDIA GPU with NVLink by its product name; "" for any other.

    The table is that of https://developer.nvidia.com/cuda-gpus.
    """
    return first_match("gpu_architectures.json", name)


def first_match(table: str, name: str) -> str:
    """Return the first key of ``table``, a JSON file here, with a pattern found in ``name``; "" if none."""
    return next(
        (key for key, patterns in _patterns(table) if any(pattern.search(name) for pattern in patterns)), ""
    )


@lru_cache
def _patterns(table: str) -> list[tuple[str, list[re.Pattern[str]]]]:
    rows: dict[str, list[str]] = json.loads(Path(__file__).with_name(table).read_text("utf-8"))
    return [(key, [re.compile(text, re.IGNORECASE) for text in texts]) for key, texts in rows.items()]


def port_role(depth: int) -> Literal["root", "upstream", "downstream"]:
    """Return the role of a bridge below ``depth`` bridges: switch ports alternate below a root port."""
    if depth == 0:
        return "root"
    return "upstream" if depth % 2 else "downstream"


def speed_gts(text: str) -> float | None:
    """Return GT/s per lane from "16 GT/s", "16.0 GT/s PCIe"; None for "", "Unknown speed"."""
    match = _SPEED.match(text)
    return float(match[1]) if match else None


def _known(vendor: str, device: str) -> tuple[str, str]:
    return _table().get(f"{vendor.removeprefix('0x')}:{device.removeprefix('0x')}", ("", ""))


@lru_cache(maxsize=1)
def _table() -> dict[str, tuple[str, str]]:
    rows: dict[str, list[str]] = json.loads(Path(__file__).with_name("pci_ids.json").read_text("utf-8"))
    return {key: (name, arch) for key, (name, arch) in rows.items()}
