"""The rules for the GPUs of one host: what is a fault, what is worth a remark, and what to do about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from probes.base import plural
from probes.health.model import GpuHealth, HostHealth, HostProblem, Severity

__all__ = ["gpu_problems"]

# Retired pages from which a GPU is a fault, and from which it is a remark. A driver retires at most 64 pages;
# NVIDIA's DCGM sets its limit at 60 and its first warning at 15 (dcgm_gpu_hardware_limits.h).
_MOST_PAGES, _MANY_PAGES = 60, 15
# Watts by which a power limit must be below the default to count as capped, because drivers round limits to
# whole watts.
_LEAST_W = 1.0
# Kind, severity, text and remedy of a problem.
_Found = tuple[str, Severity, str, str]
# NVLink errors that interrupt traffic while the link is trained again. The kinds in _LINK_REMARKS are
# repaired by sending again; DCGM reports them only above 100 a second.
_LINK_FAULTS = {
    "recovery": "recoveries of a link",
    "recovery_failed": "failed recoveries of a link",
}
_LINK_REMARKS = {
    "replay": "replays",
    "crc_flit": "CRC errors of flits",
    "crc_data": "CRC errors of data",
    "ecc_data": "ECC errors",
}
# Reasons for slow clocks (nvmlClocksEventReason… in nvml.h), each with its severity and meaning.
_HELD_DOWN: dict[str, tuple[Severity, str]] = {
    "hw_thermal": ("fault", "the GPU is too hot, and the hardware halves the clocks or more"),
    "hw_power_brake": ("fault", "the power supply asks for less, and the hardware halves the clocks or more"),
    "hw_slowdown": ("fault", "the hardware halves the clocks or more, for heat, power or a sudden draw"),
    "sw_thermal": ("remark", "the driver lowers the clocks so that the GPU stays below its temperature"),
    "sw_power_cap": ("remark", "the driver lowers the clocks so that the GPU stays below its power limit"),
    "applications_clocks": ("remark", "application clocks are set below the highest"),
    "sync_boost": ("remark", "the GPU is in a group whose clocks are kept equal"),
}
_CLOCK_REMEDIES = {
    "hw_thermal": "Check fans, air flow and heat sink: nvidia-smi -i {gpu} -q -d TEMPERATURE.",
    "hw_power_brake": "Check power supplies and the power cap of the chassis: ipmitool dcmi power reading.",
    "hw_slowdown": "See which one it is: nvidia-smi -i {gpu} -q -d PERFORMANCE,TEMPERATURE,POWER.",
    "sw_thermal": "Check fans and air flow: nvidia-smi -i {gpu} -q -d TEMPERATURE.",
    "sw_power_cap": "Compare limit and draw: nvidia-smi -i {gpu} -q -d POWER.",
    "applications_clocks": "nvidia-smi -i {gpu} -rac",
    "sync_boost": "Turn off the sync boost of its group with dcgmi config.",
}


def gpu_problems(health: HostHealth) -> list[HostProblem]:
    """Return what is wrong with the GPUs of one host, in the order of the GPUs; empty if nothing is known."""
    found: list[HostProblem] = []
    for gpu in health.gpus:
        siblings = [other for other in health.gpus if other.name == gpu.name and other.bus_id != gpu.bus_id]
        rules = (_failure, _memory, _pcie, _clocks, _settings, _use)
        problems = [*(one for rule in rules for one in rule(gpu)), *_nvlinks(gpu, siblings)]
        found += [HostProblem(health.host, gpu.bus_id, *problem) for problem in problems]
    return [*found, *_differences(health)]


def _failure(gpu: GpuHealth) -> Iterator[_Found]:
    if gpu.failure:
        yield (
            "gpu_failed",
            "fault",
            f"The driver cannot use the GPU: {gpu.failure}.",
            "Look for its XID: dmesg | grep -i xid. Then power the host off and on. If the GPU fails again, "
            "have it replaced.",
        )


def _memory(gpu: GpuHealth) -> Iterator[_Found]:
    reset = f"Drain the host, then reset the GPU: nvidia-smi -r -i {gpu.bus_id}."
    if gpu.ecc_enabled is False and gpu.ecc_default is not False:
        text = "ECC is off, so wrong bits in memory go unnoticed; it is on by default."
        yield "ecc_off", "fault", text, f"nvidia-smi -i {gpu.bus_id} -e 1, then reboot."
    if gpu.ecc_uncorrected:
        text = f"{plural(gpu.ecc_uncorrected, 'uncorrected memory error')} since the driver was loaded; "
        yield "ecc", "fault", text + "normal: 0.", reset
    elif gpu.ecc_uncorrected_ever:
        text = f"{plural(gpu.ecc_uncorrected_ever, 'uncorrected memory error')} in the life of the GPU, none "
        yield (
            "ecc_history",
            "remark",
            text + "since the driver was loaded; normal for a new GPU: 0.",
            f"See where: nvidia-smi -i {gpu.bus_id} -q -d ECC,ROW_REMAPPER.",
        )
    if gpu.remap_failed:
        text = (
            f"A row of memory could not be remapped ({plural(gpu.remapped_rows or 0, 'row')} remapped so far)"
        )
        yield (
            "remap_failed",
            "fault",
            text + "; normal: no failure.",
            "Have the GPU replaced: NVIDIA's diagnostic (dcgmi diag -r 3) confirms it.",
        )
    if gpu.remap_pending:
        text = "A row of memory waits to be remapped, and the bad one is in use until then; normal: none."
        yield "remap_pending", "fault", text, reset
    if (gpu.retired_pages or 0) >= _MANY_PAGES:
        pages = gpu.retired_pages or 0
        severity: Severity = "fault" if pages >= _MOST_PAGES else "remark"
        text = f"{pages} pages of memory are retired; normal: 0, and at {_MOST_PAGES} a GPU is replaced."
        remedy = (
            f"List them: nvidia-smi -i {gpu.bus_id} -q -d PAGE_RETIREMENT. Have the GPU replaced in time."
        )
        yield "retired_pages", severity, text, remedy
    if gpu.sram_worn:
        text = "Errors in the GPU's SRAM are above the threshold at which NVIDIA replaces it."
        yield "sram", "fault", text, "Have the GPU replaced; dcgmi diag -r 3 confirms it."


def _pcie(gpu: GpuHealth) -> Iterator[_Found]:
    width = gpu.pcie_width_load or gpu.pcie_width
    seat = (
        f"Reseat the GPU or its riser, check the slot's settings in the BIOS, then "
        f"lspci -s {gpu.bus_id} -vv | grep LnkSta."
    )
    if width and gpu.pcie_width_most and width < gpu.pcie_width_most:
        text = f"The PCIe link has {plural(width, 'lane')}; GPU and slot can have {gpu.pcie_width_most}."
        yield "pcie_width", "fault", text, seat
    if gpu.pcie_gts_load and gpu.pcie_gts_most and gpu.pcie_gts_load < gpu.pcie_gts_most:
        text = (
            f"The PCIe link runs at {gpu.pcie_gts_load:g} GT/s while data moves; "
            f"GPU and slot can run at {gpu.pcie_gts_most:g} GT/s."
        )
        yield "pcie_speed", "fault", text, seat


def _clocks(gpu: GpuHealth) -> Iterator[_Found]:
    held = [reason for reason in _HELD_DOWN if reason in gpu.throttled]
    # hw_slowdown is the general reason: it comes with hw_thermal and hw_power_brake, which say more.
    if "hw_slowdown" in held and ("hw_thermal" in held or "hw_power_brake" in held):
        held.remove("hw_slowdown")
    now = f" It runs at {gpu.sm_clock_mhz} MHz" if gpu.sm_clock_mhz else ""
    most = f" of {gpu.sm_clock_most_mhz} MHz" if now and gpu.sm_clock_most_mhz else ""
    heat = (
        f" {gpu.temperature_c} °C." if gpu.temperature_c is not None and "thermal" in " ".join(held) else ""
    )
    for reason in held:
        severity, meaning = _HELD_DOWN[reason]
        text = f"Clocks are held down ({reason}): {meaning}.{now}{most}{'.' if now else ''}{heat}"
        remedy = _CLOCK_REMEDIES[reason].format(gpu=gpu.bus_id)
        yield "clocks", severity, text, remedy


def _settings(gpu: GpuHealth) -> Iterator[_Found]:
    limit, usual = gpu.power_limit_w or 0.0, gpu.power_limit_default_w or 0.0
    if _is_capped(gpu):
        text = f"The power limit is {limit:g} W, {usual - limit:g} W below the default of {usual:g} W."
        yield "power_limit", "fault", text, f"nvidia-smi -i {gpu.bus_id} -pl {usual:.0f}"
    if gpu.mig:
        text = "MIG is on: the GPU is cut into parts, which reach no other GPU over NVLink; normal: off."
        yield "mig", "fault", text, f"nvidia-smi -i {gpu.bus_id} -mig 0, then nvidia-smi -r."
    if gpu.compute_mode == "prohibited":
        text = "The compute mode is Prohibited, so no program can use the GPU; normal: Default."
        yield "compute_mode", "fault", text, f"nvidia-smi -i {gpu.bus_id} -c 0"
    if gpu.persistence is False:
        text = "Persistence mode is off: the first use of the GPU waits for seconds, and settings are lost "
        remedy = f"systemctl enable nvidia-persistenced, and now: nvidia-smi -i {gpu.bus_id} -pm 1"
        yield "persistence", "remark", text + "when the last program ends; normal: on.", remedy


def _is_capped(gpu: GpuHealth) -> bool:
    """Return whether the power limit is 1 W or more below the default; False if either is unknown."""
    limit, usual = gpu.power_limit_w, gpu.power_limit_default_w
    return limit is not None and usual is not None and limit <= usual - _LEAST_W


def _use(gpu: GpuHealth) -> Iterator[_Found]:
    if gpu.processes:
        busy = (
            "another process computes" if gpu.processes == 1 else f"{gpu.processes} other processes compute"
        )
        yield (
            "processes",
            "remark",
            f"{busy[0].upper()}{busy[1:]} on the GPU: its figures are not those of an idle machine.",
            f"See which: nvidia-smi -i {gpu.bus_id} -q -d PIDS. Measure again when the GPU is free.",
        )


def _nvlinks(gpu: GpuHealth, siblings: list[GpuHealth]) -> Iterator[_Found]:
    look = f"nvidia-smi nvlink -s -i {gpu.bus_id}"
    most = max((other.nvlinks or 0 for other in siblings), default=0)
    # A card without a bridge has no NVLinks, although cards of its model in the same host may have some. So 0
    # links are a problem only if ``nvlinks_expected`` is known.
    expected = gpu.nvlinks_expected or (most if gpu.nvlinks else 0)
    if gpu.nvlinks is not None and gpu.nvlinks < expected:
        whose = "its model has" if gpu.nvlinks_expected else "GPUs of the same model in this host have"
        yield (
            "nvlink",
            "fault",
            f"{gpu.nvlinks} of {plural(expected, 'NVLink')} {'is' if gpu.nvlinks == 1 else 'are'} up; "
            f"{whose} {expected}.",
            f"See which: {look}. Restart the fabric manager (systemctl restart nvidia-fabricmanager) and "
            "reset the GPUs (nvidia-smi -r); if the links stay down, have GPU and baseboard checked.",
        )
    faults, remarks = (
        [f"{text} {gpu.nvlink_errors[kind]}" for kind, text in kinds.items() if gpu.nvlink_errors.get(kind)]
        for kinds in (_LINK_FAULTS, _LINK_REMARKS)
    )
    severity: Severity
    for severity, errors in (("fault", faults), ("remark", remarks)):
        if errors:
            text = f"NVLink errors since the driver was loaded: {', '.join(errors)}; normal: 0."
            remedy = (
                f"See which link: nvidia-smi nvlink -e -i {gpu.bus_id}. Read again after an hour of load."
            )
            yield "nvlink_errors", severity, text, remedy


# Facts that GPUs of one host should share, each with the function that returns a GPU's value as text, and the
# remedy. All facts but the name are compared among GPUs of the same name.
_SHARED: dict[str, tuple[Callable[[GpuHealth], str], str]] = {
    "name": (lambda gpu: gpu.name, "Put GPUs of one model into a host."),
    "VBIOS": (lambda gpu: gpu.vbios, "Bring all GPUs to one VBIOS with the vendor's firmware package."),
    "power limit": (
        lambda gpu: "" if gpu.power_limit_w is None or _is_capped(gpu) else f"{gpu.power_limit_w:g} W",
        "Give all GPUs one limit: nvidia-smi -pl WATTS.",
    ),
    "application clock": (
        lambda gpu: "" if gpu.application_clock_mhz is None else f"{gpu.application_clock_mhz} MHz",
        "Give all GPUs their default clocks: nvidia-smi -rac.",
    ),
}


def _differences(health: HostHealth) -> Iterator[HostProblem]:
    """Yield a problem for each GPU with a fact that is not the most common value on this host."""
    models = sorted({gpu.name for gpu in health.gpus if gpu.name})
    for fact, (value_of, remedy) in _SHARED.items():
        groups = (
            [health.gpus]
            if fact == "name"
            else [tuple(gpu for gpu in health.gpus if gpu.name == model) for model in models]
        )
        for gpus in groups:
            known = {gpu.bus_id: value_of(gpu) for gpu in gpus if value_of(gpu)}
            counts = Counter(known.values()).most_common()
            for value, _ in counts[1:]:
                usual, count = counts[0]
                for bus_id in (bus_id for bus_id, own in known.items() if own == value):
                    text = f"The {fact} is {value}; {count} of the {len(known)} GPUs here have {usual}."
                    yield HostProblem(health.host, bus_id, "differs", "remark", text, remedy)
