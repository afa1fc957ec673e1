"""Unknown NVLinks: GPUs whose model has NVLinks, in a topology that shows none.

A file of PCI functions shows no NVLink, and a virtual machine may hide them. Such a topology appears to have
PCIe only, which may be ten times slower than the real links.
"""

from __future__ import annotations

from probes.paths import nvlink_of, states_fabric
from probes.topology import Finding, Gpu, Host

__all__ = ["WHAT", "unknown_nvlinks"]

WHAT = "nvlinks-unknown"
_SOURCES = "add the output of nvidia-smi topo -m, or the file that NCCL_TOPO_DUMP_FILE names"


def unknown_nvlinks(host: Host) -> Finding | None:
    """Return a finding if GPUs have, or may have, NVLinks that no source shows; otherwise None."""
    able = [gpu for gpu in host.usable_gpus if _may_have(gpu)]
    if len(able) < 2 or any(link.kind != "c2c" for link in host.fabric):
        return None
    kinds = {nvlink_of(gpu) for gpu in able}
    models = ", ".join(sorted({gpu.name for gpu in able if gpu.name}))
    which = f"{len(able)} {models}" if models else f"{len(able)} GPUs of unknown model"
    if not states_fabric(host):
        have = "have NVLinks" if kinds == {"board"} else "may have NVLinks"
        said = f"its {which} {have} but no source shows them: {_SOURCES}"
    elif "board" in kinds:
        said = f"its {which} have NVLinks but report none: the driver or a virtual machine hides them"
    else:
        return None
    return Finding(WHAT, host.name, f"{said}; until then only PCIe between them is assumed")


def _may_have(gpu: Gpu) -> bool:
    return gpu.vendor != "amd" and not gpu.mig and nvlink_of(gpu) != "none"
