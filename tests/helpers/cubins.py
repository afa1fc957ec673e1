"""Machine code of kernels for GPUs that are not here, and what it needs of them."""

import re
import shutil
import subprocess
from dataclasses import dataclass
from importlib.util import find_spec

__all__ = ["NVCC", "NVRTC", "Needs", "by_nvcc", "by_nvrtc"]

NVCC = shutil.which("nvcc")
NVRTC = find_spec("cuda") is not None and find_spec("cuda.bindings.nvrtc") is not None
_KERNEL = re.compile(
    r"entry function '(\w+)'.*?(\d+) bytes spill stores, (\d+) bytes spill loads.*?Used (\d+) registers", re.S
)


@dataclass(frozen=True)
class Needs:
    """What one kernel takes of a multiprocessor."""

    registers: int
    spilled_bytes: int


def by_nvrtc(text, architecture):
    """Compile as CuPy does, at run time: needs no driver."""
    from cuda.bindings import nvrtc

    _, program = nvrtc.nvrtcCreateProgram(text.encode(), b"interpreter.cu", 0, [], [])
    options = [f"--gpu-architecture=sm_{architecture}".encode(), b"--std=c++17", b"--ptxas-options=-v"]
    (failed,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    _, size = nvrtc.nvrtcGetProgramLogSize(program)
    log = b" " * size
    nvrtc.nvrtcGetProgramLog(program, log)
    nvrtc.nvrtcDestroyProgram(program)
    assert not int(failed), log.decode()
    return _needs(log.decode())


def by_nvcc(text, architecture, folder):
    """Compile with the toolkit's compiler."""
    source = folder / "kernels.cu"
    source.write_text(text)
    command = [NVCC, "-std=c++17", "-cubin", f"-arch=sm_{architecture}", "-Xptxas", "-v", str(source)]
    done = subprocess.run([*command, "-o", str(folder / "kernels.cubin")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return _needs(done.stderr)


def _needs(log):
    return {
        name: Needs(int(registers), int(stores) + int(loads))
        for name, stores, loads, registers in _KERNEL.findall(log)
    }
