"""What NVML says of every pair of GPUs: what they can do to each other, and the way over PCIe."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from probes.nvml.call import Driver
from probes.topology import Gpu, Matrix

__all__ = ["peers_of", "read_matrices"]

# By number: the module's NVML_P2P_CAPS_INDEX_READ is a tuple by mistake.
_ABILITIES: Mapping[int, Literal["p2p_read", "p2p_write", "p2p_nvlink", "p2p_atomics", "p2p_pcie"]] = {
    0: "p2p_read",
    1: "p2p_write",
    2: "p2p_nvlink",
    3: "p2p_atomics",
    4: "p2p_pcie",
}
_STATES = {0: "OK", 1: "CNS", 2: "GNS", 3: "TNS", 4: "DR", 5: "NS", 6: "U"}
_ANCESTORS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}


def read_matrices(driver: Driver, handles: Mapping[str, Any], method: str) -> Iterator[Matrix]:
    """One matrix for each question that the driver answers for at least one pair."""
    if len(handles) < 2:
        return

    def way(a: Any, b: Any) -> str:
        answer = driver.ask("nvmlDeviceGetTopologyCommonAncestor", a, b, quiet=True)
        return _ANCESTORS.get(answer, "")

    for matrix in (_matrix("path", way, handles, method), *_abilities(driver, handles, method)):
        if any(cell not in ("", "X") for row in matrix.cells for cell in row):
            yield matrix


def _abilities(driver: Driver, handles: Mapping[str, Any], method: str) -> Iterator[Matrix]:
    for number, what in _ABILITIES.items():

        def ask(a: Any, b: Any, number: int = number) -> str:
            quiet = number != 0
            answer = driver.ask("nvmlDeviceGetP2PStatus", a, b, number, quiet=quiet)
            return _STATES.get(answer, "")

        yield _matrix(what, ask, handles, method)


_What = Literal["path", "p2p_read", "p2p_write", "p2p_nvlink", "p2p_atomics", "p2p_pcie"]


def _matrix(what: _What, ask: Callable[[Any, Any], str], handles: Mapping[str, Any], method: str) -> Matrix:
    cells = tuple(
        tuple("X" if here == there else ask(a, b) for there, b in handles.items())
        for here, a in handles.items()
    )
    return Matrix(what, tuple(handles), cells, method)


def peers_of(gpu: Gpu, matrices: tuple[Matrix, ...]) -> tuple[str, ...]:
    """The GPUs that this one can read directly."""
    for matrix in matrices:
        if matrix.what == "p2p_read":
            return tuple(device for device in matrix.devices if matrix.cell(gpu.bus_id, device) == "OK")
    return ()
