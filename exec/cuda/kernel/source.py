"""The source text that NVRTC compiles: columns of tables as enumerations, definitions, the kernels."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from exec.cuda.kernel.elements import element_of, operator_of, require_switch_sum
from exec.cuda.kernel.encode import BLOCK, LINK, RECORD, WireProtocol
from exec.cuda.kernel.rows import BY_SWITCH, DOES, STEP

__all__ = ["OPTIONS", "SHORT_THREADS", "THREADS", "kernels"]

# With 64 registers a thread, two threadblocks of 512 threads fit on a multiprocessor of sm_75 and later.
THREADS = 512
# The threads of a block whose tiles give each at most one pack of 16 bytes: fewer meet at each barrier.
# On an H200, 14 steps of 128 bytes took 29 us with kernels compiled for 256 threads, and 32 us with 512.
SHORT_THREADS = 256
OPTIONS = ("--std=c++17",)
_DEFINES: dict[WireProtocol, str] = {"Simple": "", "LL": "#define LL", "LL128": "#define LL\n#define LL128"}


def kernels(dtype: str, redop: str, wire_protocol: WireProtocol = "Simple", *, multimem: bool = False) -> str:
    """Return the CUDA C++ of ``ccctl_interpret``, ``ccctl_combine`` and ``ccctl_divide``.

    The source is for one element type, operator and protocol; with ``multimem`` it has the instructions of
    switches, for GPUs from sm_90 on. It includes no header, so any C++ compiler can compile it. Raises
    UsageError if switches do not sum such elements.
    """
    if multimem:
        require_switch_sum(dtype, redop)
    return "\n".join(
        (
            _enumerations(),
            f"#define ELEMENT {element_of(dtype)}",
            f"#define OPERATOR {operator_of(redop)}",
            f"#define THREADS {THREADS}",
            _DEFINES[wire_protocol],
            "#define MULTIMEM" if multimem else "",
            (files("exec.cuda.kernel") / "interpreter.cu").read_text(),
        )
    )


@cache
def _enumerations() -> str:
    tables = {"STEP": STEP, "BLOCK": BLOCK, "LINK": LINK, "RECORD": RECORD}
    lines = [_enumeration(name, (*columns, "columns")) for name, columns in tables.items()]
    bits = DOES | BY_SWITCH
    lines.append(f"enum {{ {', '.join(f'{name.upper()} = {bit}' for name, bit in bits.items())} }};")
    return "\n".join(lines)


def _enumeration(name: str, columns: Sequence[str]) -> str:
    return f"enum {{ {', '.join(f'{name}_{column.upper()}' for column in columns)} }};"
