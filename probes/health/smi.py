"""The health of NVIDIA's GPUs from a saved ``nvidia-smi -q -x``, for hosts whose driver cannot be asked.

The file has no NVLinks, and no clocks or speeds under load.
"""

from __future__ import annotations

from collections.abc import Iterator

from probes.health.model import GpuHealth
from probes.smi import GpuQuery, read_query
from probes.topology import PCIE_GTS

__all__ = ["gpus_of", "versions_of"]

_SOURCE = "nvidia-smi -q -x"
_GEN, _WIDTH = "pci/pci_gpu_link_info/pcie_gen/", "pci/pci_gpu_link_info/link_widths/"
# Elements that list why clocks are held down, with the prefix of each reason in them. Drivers since 535 call
# these event reasons, older ones throttle reasons.
_REASONS = {
    "clocks_event_reasons": "clocks_event_reason_",
    "clocks_throttle_reasons": "clocks_throttle_reason_",
}
# This reason is left out: an idle GPU lowers its clocks itself, and nothing holds them down.
_IDLE = "gpu_idle"
# Names of the counts of uncorrectable errors. Drivers for Hopper and later split SRAM errors by the code that
# found them (parity, SECDED). Volta counts per location, with a total.
_UNCORRECTED = (
    "sram_uncorrectable",
    "sram_uncorrectable_parity",
    "sram_uncorrectable_secded",
    "dram_uncorrectable",
    "double_bit/total",
)


def gpus_of(content: bytes | str, source: str = _SOURCE) -> tuple[GpuHealth, ...]:
    """Return the health of each GPU in the file; raises DataError for another document.

    ``source`` names the file in messages.
    """
    data = content.encode() if isinstance(content, str) else content
    return tuple(_health(gpu) for gpu in read_query(data, source).gpus)


def versions_of(content: bytes | str, source: str = _SOURCE) -> dict[str, str]:
    """Return the versions that should be equal on all hosts: "driver" and "cuda", if the file states them.

    "cuda" is the newest version that the driver supports. Raises DataError for another document.
    """
    data = content.encode() if isinstance(content, str) else content
    query = read_query(data, source)
    return {name: said for name, said in (("driver", query.driver), ("cuda", query.cuda)) if said}


def _health(gpu: GpuQuery) -> GpuHealth:
    return GpuHealth(
        bus_id=gpu.bus_id,
        name=gpu.word("product_name"),
        vbios=gpu.word("vbios_version"),
        ecc_enabled=gpu.enabled("ecc_mode/current_ecc"),
        ecc_uncorrected=_sum(gpu, "ecc_errors/volatile/", *_UNCORRECTED),
        ecc_uncorrected_ever=_sum(gpu, "ecc_errors/aggregate/", *_UNCORRECTED),
        remapped_rows=_sum(gpu, "remapped_rows/", "remapped_row_corr", "remapped_row_unc"),
        remap_pending=gpu.yes("remapped_rows/remapped_row_pending"),
        remap_failed=gpu.yes("remapped_rows/remapped_row_failure"),
        retired_pages=_sum(
            gpu,
            "retired_pages/",
            "multiple_single_bit_retirement/retired_count",
            "double_bit_retirement/retired_count",
        ),
        pcie_gts=PCIE_GTS.get(gpu.count(f"{_GEN}current_link_gen") or 0),
        pcie_width=gpu.whole_amount("x", f"{_WIDTH}current_link_width"),
        pcie_gts_most=PCIE_GTS.get(gpu.count(f"{_GEN}max_link_gen") or 0),
        pcie_width_most=gpu.whole_amount("x", f"{_WIDTH}max_link_width"),
        pcie_replays=gpu.count("pci/replay_counter"),
        throttled=tuple(_throttled(gpu)),
        sm_clock_mhz=gpu.whole_amount("MHz", "clocks/sm_clock"),
        sm_clock_most_mhz=gpu.whole_amount("MHz", "max_clocks/sm_clock"),
        application_clock_mhz=gpu.whole_amount("MHz", "applications_clocks/graphics_clock"),
        power_limit_w=gpu.amount("W", "gpu_power_readings/current_power_limit", "power_readings/power_limit"),
        power_limit_default_w=gpu.amount(
            "W", "gpu_power_readings/default_power_limit", "power_readings/default_power_limit"
        ),
        temperature_c=gpu.whole_amount("C", "temperature/gpu_temp"),
        persistence=gpu.enabled("persistence_mode"),
        compute_mode=gpu.word("compute_mode"),
        mig=gpu.enabled("mig_mode/current_mig"),
        processes=_processes(gpu),
    )


def _sum(gpu: GpuQuery, place: str, *names: str) -> int | None:
    """Return the sum of the counts that the file states; None if it states none."""
    counts = [count for name in names if (count := gpu.count(place + name)) is not None]
    return sum(counts) if counts else None


def _throttled(gpu: GpuQuery) -> Iterator[str]:
    for place, prefix in _REASONS.items():
        reasons = gpu.find(place)
        for reason in reasons.children if reasons else ():
            name = reason.tag.removeprefix(prefix)
            if reason.text.strip() == "Active" and name != _IDLE:
                yield name


def _processes(gpu: GpuQuery) -> int | None:
    """Return the number of processes on the GPU; None if the driver does not list them."""
    listed = gpu.find("processes")
    if listed is None or listed.text.strip() == "N/A":
        return None
    return sum(child.tag == "process_info" for child in listed.children)
