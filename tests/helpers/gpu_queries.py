"""Samples of what ``nvidia-smi -q -x`` prints, in the forms of old and new drivers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

__all__ = ["GPU", "query_xml"]

# One healthy H100 of a recent driver, by the path of each element.
GPU: Mapping[str, str] = {
    "product_name": "NVIDIA H100 80GB HBM3",
    "persistence_mode": "Enabled",
    "mig_mode/current_mig": "Disabled",
    "uuid": "GPU-00000000-0000-0000-0000-000000000000",
    "minor_number": "3",
    "vbios_version": "96.00.74.00.01",
    "pci/pci_base_class": "3",
    "pci/pci_sub_class": "2",
    "pci/pci_device_id": "233010DE",
    "pci/pci_sub_system_id": "16C110DE",
    "pci/pci_gpu_link_info/pcie_gen/max_link_gen": "5",
    "pci/pci_gpu_link_info/pcie_gen/current_link_gen": "1",
    "pci/pci_gpu_link_info/link_widths/max_link_width": "16x",
    "pci/pci_gpu_link_info/link_widths/current_link_width": "16x",
    "pci/replay_counter": "0",
    "clocks_event_reasons/clocks_event_reason_gpu_idle": "Active",
    "clocks_event_reasons/clocks_event_reason_hw_slowdown": "Not Active",
    "clocks_event_reasons/clocks_event_reason_sw_power_cap": "Not Active",
    "fb_memory_usage/total": "81559 MiB",
    "compute_mode": "Default",
    "ecc_mode/current_ecc": "Enabled",
    "ecc_errors/volatile/sram_correctable": "9",
    "ecc_errors/volatile/sram_uncorrectable_parity": "0",
    "ecc_errors/volatile/sram_uncorrectable_secded": "0",
    "ecc_errors/volatile/dram_correctable": "9",
    "ecc_errors/volatile/dram_uncorrectable": "0",
    "ecc_errors/aggregate/sram_uncorrectable_parity": "0",
    "ecc_errors/aggregate/sram_uncorrectable_secded": "1",
    "ecc_errors/aggregate/dram_uncorrectable": "2",
    "retired_pages/multiple_single_bit_retirement/retired_count": "N/A",
    "retired_pages/double_bit_retirement/retired_count": "N/A",
    "remapped_rows/remapped_row_corr": "1",
    "remapped_rows/remapped_row_unc": "2",
    "remapped_rows/remapped_row_pending": "No",
    "remapped_rows/remapped_row_failure": "No",
    "temperature/gpu_temp": "33 C",
    "gpu_power_readings/current_power_limit": "600.00 W",
    "gpu_power_readings/default_power_limit": "700.00 W",
    "clocks/sm_clock": "345 MHz",
    "max_clocks/sm_clock": "1980 MHz",
    "applications_clocks/graphics_clock": "1755 MHz",
    "fabric/state": "Completed",
    "fabric/status": "Success",
    "fabric/cliqueId": "0",
    "fabric/clusterUuid": "00000000-0000-0000-0000-000000000000",
}


def query_xml(
    gpus: Iterable[tuple[str, Mapping[str, str]]],
    *,
    attached: int | None = None,
    driver: str = "570.86.15",
    version: int = 12,
) -> str:
    """Return a document with a GPU for each (id attribute, values by path); "" as value is no element."""
    listed = list(gpus)
    head = [
        '<?xml version="1.0" ?>',
        f'<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v{version}.dtd">',
        "<nvidia_smi_log>",
        "<timestamp>Thu Nov 14 07:00:14 2024</timestamp>",
        f"<driver_version>{driver}</driver_version><cuda_version>12.8</cuda_version>",
        f"<attached_gpus>{len(listed) if attached is None else attached}</attached_gpus>",
    ]
    body = [f'<gpu id="{place}">{_elements(values)}</gpu>' for place, values in listed]
    return "\n".join([*head, *body, "</nvidia_smi_log>"]) + "\n"


def _elements(values: Mapping[str, str]) -> str:
    """Return the elements at these paths; elements of one parent are inside it, in order."""
    parents: dict[str, dict[str, str]] = {}
    for path, value in values.items():
        if value:
            tag, _, rest = path.partition("/")
            parents.setdefault(tag, {})[rest] = value
    return "".join(
        f"<{tag}>{inside[''] if '' in inside else _elements(inside)}</{tag}>"
        for tag, inside in parents.items()
    )
