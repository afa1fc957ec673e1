"""Links from NVML: the NVLinks of each GPU and their far ends, and the matrices of all pairs of GPUs.

The matrices hold peer-to-peer access and the path over PCIe.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

from probes.base import is_hidden
from probes.nvml.call import METHOD, Driver, bus_id_of
from probes.topology import FabricLink, Gpu, Matrix

__all__ = ["link_states", "peers_of", "read_links", "read_matrices"]

# NVML_FI_DEV_NVLINK_LINK_COUNT and NVML_FI_DEV_NVLINK_GET_SPEED (MB/s) in nvml.h.
_LINK_COUNT_FIELD = 91
_LINK_SPEED_FIELD = 164
# NVML_FI_DEV_C2C_LINK_COUNT and NVML_FI_DEV_C2C_LINK_GET_MAX_BW (MB/s) in nvml.h.
_C2C_COUNT_FIELD, _C2C_SPEED_FIELD = 170, 172
# Twice NVML_NVLINK_MAX_LINKS (18 in nvml.h), tried if the driver does not count its links.
_MOST_LINKS = 36
_LINK_VERSIONS = {1: "1.0", 2: "2.0", 3: "2.2", 4: "3.0", 5: "3.1", 6: "4.0", 7: "5.0", 8: "6.0"}
# Keys are numbers, because the module's NVML_P2P_CAPS_INDEX_READ is a tuple by mistake.
_ABILITIES: Mapping[int, Literal["p2p_read", "p2p_write", "p2p_nvlink", "p2p_atomics", "p2p_pcie"]] = {
    0: "p2p_read",
    1: "p2p_write",
    2: "p2p_nvlink",
    3: "p2p_atomics",
    4: "p2p_pcie",
}
_STATES = {0: "OK", 1: "CNS", 2: "GNS", 3: "TNS", 4: "DR", 5: "NS", 6: "U"}
_What = Literal["path", "p2p_read", "p2p_write", "p2p_nvlink", "p2p_atomics", "p2p_pcie"]
_ANCESTORS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}


def read_links(driver: Driver, handle: Any, source: str, gpus: Container[str]) -> list[FabricLink]:
    """Return the links of one GPU, grouped by far end; links that are down form their own group."""
    found: dict[tuple[str, str], FabricLink] = {}
    for number, is_up in link_states(driver, handle):
        target, kind = _far_end(driver, handle, number, gpus) if is_up else ("", "unknown")
        version = driver.ask("nvmlDeviceGetNvLinkVersion", handle, number, quiet=True)
        rate_mbs = driver.field(handle, _LINK_SPEED_FIELD, number) if is_up else None
        first = FabricLink(
            source=source,
            target=target,
            target_kind=kind,
            kind="nvlink",
            count=0,
            method=METHOD,
            version=_LINK_VERSIONS.get(version, ""),
            gbs=rate_mbs / 1000 if rate_mbs else None,
            state="up" if is_up else "down",
        )
        before = found.get((target, first.state), first)
        found[target, first.state] = replace(
            before, count=before.count + 1, numbers=(*before.numbers, number)
        )
    return [*found.values(), *_to_cpu(driver, handle, source)]


def link_states(driver: Driver, handle: Any) -> Iterator[tuple[int, bool]]:
    """Yield (number, is it up) of each link. Past the last link, drivers return either of two errors."""
    nvml = driver.nvml
    for number in range(driver.field(handle, _LINK_COUNT_FIELD) or _MOST_LINKS):
        try:
            state = nvml.nvmlDeviceGetNvLinkState(handle, number)
        except (nvml.NVMLError_NotSupported, nvml.NVMLError_InvalidArgument):
            return
        except nvml.NVMLError as error:
            driver.refused["nvmlDeviceGetNvLinkState", str(error)] += 1
            continue
        yield number, state == 1


def _far_end(
    driver: Driver, handle: Any, number: int, gpus: Container[str]
) -> tuple[str, Literal["gpu", "switch", "cpu", "unknown"]]:
    place = driver.ask("nvmlDeviceGetNvLinkRemotePciInfo", handle, number, quiet=True)
    target = "" if place is None else bus_id_of(place)
    kind = driver.ask("nvmlDeviceGetNvLinkRemoteDeviceType", handle, number, quiet=True)
    if target in gpus:
        return target, "gpu"
    # A virtual machine hides its switches behind an all-ones bus id.
    if target and is_hidden(target):
        return "nvswitch", "switch"
    known: dict[int, Literal["switch", "cpu"]] = {1: "cpu", 2: "switch"}
    return target or ("nvswitch" if kind == 2 else ""), known.get(kind, "unknown")


def _to_cpu(driver: Driver, handle: Any, source: str) -> Iterator[FabricLink]:
    """Yield the chip-to-chip links of a Grace module, which only field values report."""
    count = driver.field(handle, _C2C_COUNT_FIELD) or 0
    speed_mbs = driver.field(handle, _C2C_SPEED_FIELD) if count else None
    if 0 < count <= _MOST_LINKS:
        gbs = speed_mbs / 1000 if speed_mbs else None
        yield FabricLink(source, "cpu", "cpu", "c2c", count, METHOD, gbs=gbs, state="up")


def read_matrices(driver: Driver, handles: Mapping[str, Any]) -> Iterator[Matrix]:
    """Yield one matrix for each question that the driver answers for at least one pair."""
    if len(handles) < 2:
        return

    def way(a: Any, b: Any) -> str:
        answer = driver.ask("nvmlDeviceGetTopologyCommonAncestor", a, b, quiet=True)
        return _ANCESTORS.get(answer, "")

    for matrix in (_matrix("path", way, handles), *_abilities(driver, handles)):
        if any(cell not in ("", "X") for row in matrix.cells for cell in row):
            yield matrix


def _abilities(driver: Driver, handles: Mapping[str, Any]) -> Iterator[Matrix]:
    for number, what in _ABILITIES.items():

        def ask(a: Any, b: Any, number: int = number) -> str:
            quiet = number != 0
            answer = driver.ask("nvmlDeviceGetP2PStatus", a, b, number, quiet=quiet)
            return _STATES.get(answer, "")

        yield _matrix(what, ask, handles)


def _matrix(what: _What, ask: Callable[[Any, Any], str], handles: Mapping[str, Any]) -> Matrix:
    cells = tuple(
        tuple("X" if here == there else ask(a, b) for there, b in handles.items())
        for here, a in handles.items()
    )
    return Matrix(what, tuple(handles), cells, METHOD)


def peers_of(gpu: Gpu, matrices: tuple[Matrix, ...]) -> tuple[str, ...]:
    """Return the GPUs that this one can read directly."""
    for matrix in matrices:
        if matrix.what == "p2p_read":
            return tuple(device for device in matrix.devices if matrix.cell(gpu.bus_id, device) == "OK")
    return ()
