"""The flags of the kernels in their PTX: the order and scope of each access that other processors see.

Other GPUs and the host read the counts, so these have the scope of the system. Flags between threadblocks of
a rank have the scope of the GPU. A line of LL is one store and one load of 16 bytes, and so is each eighth of
a line of LL128. A volatile access is a relaxed one with the scope of the system (PTX ISA, Memory Consistency
Model).
"""

import functools
import re
from collections import Counter

from exec.cuda.kernel.source import OPTIONS, kernels

__all__ = [
    "ARCHITECTURES",
    "PURPOSES",
    "SPREADS",
    "SUM",
    "SUMS",
    "findings",
    "instructions",
    "ptx_of",
    "told",
]

ARCHITECTURES = (70, 75, 80, 86, 89, 90, 100)
ORDERED = re.compile(r"^\s*(?:@!?%p\d+ )?((?:ld|st|atom|red|fence|membar|multimem)\.[\w.:]+)", re.MULTILINE)
ORDERS = ("acquire", "release", "relaxed", "acq_rel", "sc", "fence", "membar", "atom", "red")
COUNT = {"ld.acquire.sys.global.u64", "st.release.sys.global.u64"}
FLAG = {"ld.acquire.gpu.global.u64", "st.release.gpu.global.u64"}
LINE = "st.volatile.global.v4.u32"
PARTS = {"st.volatile.global.v2.u64", "ld.volatile.global.v2.u64"}
# The instructions of switches: a sum's ending for each type, and the stores.
SUM = "multimem.ld_reduce.relaxed.sys.global.add."
SPREADS = {"multimem.st.relaxed.sys.global.v4.f32", "multimem.st.relaxed.sys.global.u32"}
SUMS = {
    "float32": {"v4.f32", "f32"},
    "float16": {"acc::f32.v4.f16x2", "acc::f32.f16x2"},
    "bfloat16": {"acc::f32.v4.bf16x2", "acc::f32.bf16x2"},
    "int32": {"s32"},
}
# The purposes of accesses, by their names' beginnings; the first that fits counts.
PURPOSES = {
    "ld.acquire.sys": "counts of a FIFO, stop request",
    "st.release.sys": "counts of a FIFO, stop request, record of who waits",
    "ld.acquire.gpu": "flag of another threadblock's steps",
    "st.release.gpu": "flag of this threadblock's steps",
    "st.volatile.global.v4": "line of LL, whole",
    "ld.volatile.global.v4": "data, 16 bytes; line of LL, whole",
    "st.volatile.global.v2": "eighth of a line of LL128, whole",
    "ld.volatile.global.v2": "eighth of a line of LL128, whole",
    "ld.volatile.global": "data, by word or element",
    "multimem.ld_reduce": "sum by a switch",
    "multimem.st": "store by a switch",
    "fence.proxy.alias": "order with accesses by a switch",
}


@functools.cache
def ptx_of(architecture, by, dtype="float32", *, multimem=False):
    """Return the PTX of the kernels for an architecture."""
    from cuda.bindings import nvrtc

    text = kernels(dtype, "sum", by, multimem=multimem).encode()
    _, program = nvrtc.nvrtcCreateProgram(text, b"interpreter.cu", 0, [], [])
    options = [f"--gpu-architecture=compute_{architecture}", *OPTIONS]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
    assert int(status) == 0
    _, size = nvrtc.nvrtcGetPTXSize(program)
    ptx = b" " * size
    nvrtc.nvrtcGetPTX(program, ptx)
    nvrtc.nvrtcDestroyProgram(program)
    return ptx.decode()


def instructions(text):
    """Count each instruction of the PTX ``text`` that reads or writes memory."""
    return Counter(ORDERED.findall(text))


def told(name):
    """Return (purpose, order, scope) of an access that other processors see; None of any other."""
    purpose = next((why for beginning, why in PURPOSES.items() if name.startswith(beginning)), None)
    words = re.split(r"[.:]", name)
    order = next((word for word in words if word in ("acquire", "release", "relaxed")), "")
    if purpose is None and not order:
        return None
    if "volatile" in words:
        return purpose, "relaxed", "system"
    scope = {"sys": "system", "gpu": "GPU"}.get(
        next((word for word in words if word in ("sys", "gpu")), ""), ""
    )
    return purpose or "unknown", order or "fence", scope or "-"


def findings(found, by):
    """Return a line for each order, scope or whole store that is missing, which a peer could see."""
    known = COUNT | FLAG
    wrong = [
        name
        for name in found
        if set(re.split(r"[.:]", name)) & {*ORDERS} and name not in known and not name.startswith("multimem")
    ]
    wrong += [f"no {name}" for name in sorted(known) if not found[name]]
    # A record of who waits, a request to stop, the two counts: four stores at least.
    wrong += ["fewer than four stores for other processors"] * (found["st.release.sys.global.u64"] < 4)
    wrong += [f"{name} where lines are expected" for name in found if by == "LL" and "v2" in name]
    wrong += ["no line is stored whole"] * (by == "LL" and not found[LINE])
    wrong += [f"no {name}" for name in sorted(PARTS) if by == "LL128" and not found[name]]
    # All else by LL128 is loaded and stored by words or elements: no other access has the size of a part.
    wrong += [f"{name} for parts" for name in found if by == "LL128" and "v2" in name and name not in PARTS]
    # Data of a peer must not come from this multiprocessor's first cache.
    wrong += [name for name in found if name.startswith("ld.global") and ".v4" in name]
    return wrong
