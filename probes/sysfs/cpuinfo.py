"""Maker and model of this machine's CPUs, from /proc/cpuinfo: they decide what lies between NUMA nodes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from probes.numbers import whole
from probes.sysfs.text import lines

__all__ = ["Processor", "read_cpuinfo"]


@dataclass(frozen=True)
class Processor:
    """What kind of CPU this is; "" and None where the file does not say."""

    arch: str = ""
    vendor: str = ""
    family: int | None = None
    model: int | None = None


def read_cpuinfo(root: Path) -> Processor:
    """The kind of the first CPU: all of one machine are alike."""
    said: dict[str, str] = {}
    for line in lines(root / "proc/cpuinfo").splitlines():
        name, _, value = line.partition(":")
        said.setdefault(name.strip(), value.strip())
    if "vendor_id" in said:
        family, model = (_number(said.get(name, "")) for name in ("cpu family", "model"))
        return Processor("x86_64", said["vendor_id"], family, model)
    if "CPU implementer" in said:
        return Processor("arm64", "", None, None)
    return Processor("ppc64") if said.get("cpu", "").startswith("POWER") else Processor()


def _number(text: str) -> int | None:
    return whole(text)
