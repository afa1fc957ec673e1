"""Evidence: one thing that another tool found wrong with a host or a part of it.

Parsers of health checks, diagnostics and logs return lists of `Evidence`, so that a verdict can cite the
findings of every tool in the same form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

import msgspec

from probes.base import DataError
from probes.files import MOST_TEXT_BYTES

__all__ = ["START_BYTES", "Evidence", "Severity", "decoded_json", "text_of", "worst_first"]

Severity = Literal["fault", "remark"]
T = TypeVar("T")
# The bytes at the start of a file in which most parsers look for marks of their format.
START_BYTES = 1 << 16
# Most characters that are kept of a tool's message. Longer messages are dumps of memory or of whole commands.
_MOST_CHARACTERS = 400


# The next thing to look at, by kind of evidence.
_REMEDIES = {
    "socket_fallback": "see whether ibstat shows an active port there, whether /dev/infiniband is in the "
    "container, and what NCCL_IB_DISABLE, NCCL_IB_HCA and NCCL_NET are set to",
    "nic_missing": "see whether ibstat shows an active port there, and whether /dev/infiniband is in the "
    "container",
    "nics_differ": "compare ibstat and NCCL_IB_HCA of the hosts",
    "nic_unused": "see whether ibstat shows its port active, and whether NCCL_IB_HCA leaves it out",
    "gdr_off": "load nvidia_peermem (or a kernel with dma-buf), and see NCCL_NET_GDR_LEVEL",
    "host_memory": "see nvidia-smi topo -p2p r, ACS and IOMMU of the host, and NCCL_P2P_DISABLE and "
    "NCCL_P2P_LEVEL",
    "local_interface": "set NCCL_SOCKET_IFNAME to the interface that the other hosts reach",
    "versions_differ": "use the same container or the same library on all hosts",
    "ib_timeout": "look at the error counters of the port and the switch (perfquery); clean or swap the "
    "cable",
    "ib_port": "look at dmesg and the error counters of the port",
    "p2p_disabled": "run dcgmi diag -r 3 on the host",
    "nvls_off": "see whether nv-fabricmanager runs on the host",
    "plugin_missing": "install the plugin on this host too, or leave NCCL_NET_PLUGIN unset everywhere",
    "environment_differs": "start all ranks with the same value",
}


@dataclass(frozen=True)
class Evidence:
    """One finding of another tool.

    ``host`` is "" if the tool does not name it. ``part`` names the device, pair or setting ("GPU 3",
    "mlx5_0", "rank 4"). ``kind`` is a stable word ("diagnostic", "copy_rate", "socket_fallback"…). A "fault"
    is a reason to refuse the part, a "remark" is not. ``text`` is one sentence. ``value`` is the
    measured number in ``unit``, and ``normal`` is what it should be; each is None if the tool does not give
    it. ``source`` is the file that holds the finding, "" if the finding follows from several files.
    """

    tool: str
    host: str
    part: str
    kind: str
    severity: Severity
    text: str
    value: float | None = None
    unit: str = ""
    normal: float | None = None
    source: str = ""

    @property
    def remedy(self) -> str:
        """The next thing to look at; "" if the text says it or nothing is known."""
        return _REMEDIES.get(self.kind, "")


def worst_first(found: Iterable[Evidence]) -> list[Evidence]:
    """Return the findings, faults first, otherwise in the given order.

    Findings that differ only in ``source`` are returned once if they name a host.
    """
    distinct: dict[Evidence, Evidence] = {}
    for one in found:
        distinct.setdefault(replace(one, source="") if one.host else one, one)
    return sorted(distinct.values(), key=lambda one: one.severity != "fault")


def decoded_json(content: bytes, source: str, kind: type[T], what: str) -> T:
    """Return a JSON document as ``kind``; raises DataError that says ``what`` was expected."""
    if len(content) > MOST_TEXT_BYTES:
        raise DataError(
            source, [f"expected {what}, at most {MOST_TEXT_BYTES} bytes, found {len(content)} bytes"]
        )
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(source, [f"expected {what}: {error}"]) from error


def text_of(message: Any) -> str:
    """Return a tool's message as one line of bounded length."""
    line = re.sub(r"\s+", " ", str(message)).strip()
    return line if len(line) <= _MOST_CHARACTERS else line[: _MOST_CHARACTERS - 1] + "…"
