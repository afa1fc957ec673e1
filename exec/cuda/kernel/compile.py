"""Kernels compiled by NVRTC for one architecture; this needs no driver, no GPU and no header.

CuPy does not compile them, because its kernels flush subnormal numbers to zero, unlike NumPy and MPI.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from exec.cuda.kernel.encode import WireProtocol
from exec.cuda.kernel.source import OPTIONS, kernels
from probes.base import UnavailableError, install

__all__ = ["Cubin", "Needs", "architectures", "cubin", "needs_of"]

_HINT = install("cuda12", "cuda13")
_KERNEL = re.compile(
    r"entry function '(\w+)'.*?(\d+) bytes spill stores, (\d+) bytes spill loads.*?Used (\d+) registers", re.S
)


@dataclass(frozen=True)
class Needs:
    """The needs of a kernel: registers per thread, and bytes spilled from registers."""

    registers: int
    spilled_bytes: int


@dataclass(frozen=True)
class Cubin:
    """The machine code of kernels, and the needs of each."""

    code: bytes
    needs: dict[str, Needs]


@cache
def cubin(
    dtype: str,
    redop: str,
    architecture: int,
    wire_protocol: WireProtocol = "Simple",
    *,
    multimem: bool = False,
) -> Cubin:
    """Return the kernels for one type, operator and protocol, with the instructions of switches if asked for.

    ``architecture`` is 90 for compute capability 9.0. Raises UnavailableError if NVRTC is not installed, does
    not know the architecture or fails.
    """
    known = architectures()
    from cuda.bindings import nvrtc

    if architecture not in known:
        raise UnavailableError(
            f"NVRTC compiles for sm_{min(known)} to sm_{max(known)}, this GPU is sm_{architecture}",
            hint="Install the NVRTC of a CUDA version that knows this GPU.",
        )
    text = kernels(dtype, redop, wire_protocol, multimem=multimem).encode()
    program = _answer(nvrtc.nvrtcCreateProgram, text, b"interpreter.cu", 0, [], [])
    options = [f"--gpu-architecture=sm_{architecture}", "--ptxas-options=-v", *OPTIONS]
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
        log = _text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program).decode()
        if status == nvrtc.nvrtcResult.NVRTC_ERROR_COMPILATION:
            raise AssertionError(f"the kernels do not compile for sm_{architecture}: {log}")
        _check(status, "nvrtcCompileProgram")
        code = _text(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    return Cubin(code, needs_of(log))


def needs_of(log: str) -> dict[str, Needs]:
    """Return the needs of each kernel, from the log of the assembler (ptxas -v)."""
    return {
        name: Needs(int(registers), int(stores) + int(loads))
        for name, stores, loads, registers in _KERNEL.findall(log)
    }


def architectures() -> list[int]:
    """Return the architectures that NVRTC compiles for; raises UnavailableError if it is not installed."""
    try:
        from cuda.bindings import nvrtc

        # The binding raises RuntimeError if it does not find the library.
        known = _answer(nvrtc.nvrtcGetSupportedArchs)
    except (ImportError, RuntimeError) as error:
        raise UnavailableError(f"NVRTC cannot be loaded: {error}", hint=_HINT) from error
    return [int(number) for number in known]


def _text(size_of: Any, read: Any, program: Any) -> bytes:
    content: bytes = b" " * _answer(size_of, program)
    _answer(read, program, content)
    return content


def _answer(call: Any, *arguments: Any) -> Any:
    """Return the answer of a call of NVRTC; raises UnavailableError if it fails."""
    status, *answer = call(*arguments)
    _check(status, call.__name__)
    return answer[0] if answer else None


def _check(status: Any, name: str) -> None:
    if int(status):
        raise UnavailableError(
            f"NVRTC: {name} fails: {status.name}", hint="ccctl doctor says what is missing."
        )
