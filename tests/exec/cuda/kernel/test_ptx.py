"""Memory order and scope of the kernels' flags, read in their PTX.

Other GPUs and the host read the counts, so these have the scope of the system. Flags between threadblocks of
a rank have the scope of the GPU. A line of LL is one store and one load of 16 bytes, and so is each eighth of
a line of LL128.
"""

import re
from collections import Counter

import pytest
from cubins import NVRTC
from drawn_examples import chessboard

from exec.cuda.kernel.source import OPTIONS, kernels

pytestmark = pytest.mark.skipif(not NVRTC, reason="NVRTC is not installed (cuda-bindings, nvidia-cuda-nvrtc)")
ARCHITECTURES = (70, 75, 80, 86, 89, 90, 100)
ORDERED = re.compile(r"^\s*(?:@!?%p\d+ )?((?:ld|st|atom|red|fence|membar)\.[\w.:]+)", re.MULTILINE)
ORDERS = ("acquire", "release", "relaxed", "acq_rel", "sc", "fence", "membar", "atom", "red")
COUNT = {"ld.acquire.sys.global.u64", "st.release.sys.global.u64"}
FLAG = {"ld.acquire.gpu.global.u64", "st.release.gpu.global.u64"}
LINE = "st.volatile.global.v4.u32"
# The instructions of switches: a sum's ending for each type, and the stores.
SUM = "multimem.ld_reduce.relaxed.sys.global.add."
SPREADS = {"multimem.st.relaxed.sys.global.v4.f32", "multimem.st.relaxed.sys.global.u32"}
SUMS = {
    "float32": {"v4.f32", "f32"},
    "float16": {"acc::f32.v4.f16x2", "acc::f32.f16x2"},
    "bfloat16": {"acc::f32.v4.bf16x2", "acc::f32.bf16x2"},
    "int32": {"s32"},
}
PARTS = {"st.volatile.global.v2.u64", "ld.volatile.global.v2.u64"}


def ptx_of(architecture, by, change=lambda text: text, dtype="float32", *, multimem=False):
    """The PTX of the kernels for an architecture."""
    from cuda.bindings import nvrtc

    text = change(kernels(dtype, "sum", by, multimem=multimem)).encode()
    _, program = nvrtc.nvrtcCreateProgram(text, b"interpreter.cu", 0, [], [])
    options = [f"--gpu-architecture=compute_{architecture}", *OPTIONS]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
    assert int(status) == 0
    _, size = nvrtc.nvrtcGetPTXSize(program)
    ptx = b" " * size
    nvrtc.nvrtcGetPTX(program, ptx)
    nvrtc.nvrtcDestroyProgram(program)
    return ptx.decode()


def instructions(*arguments, **kinds):
    """Count each instruction of the PTX that reads or writes memory."""
    return Counter(ORDERED.findall(ptx_of(*arguments, **kinds)))


def findings(found, by):
    """Return a line for each order, scope or whole store that is missing, which a peer could see."""
    told = [name for name in found if set(re.split(r"[.:]", name)) & {*ORDERS} and name not in COUNT | FLAG]
    told += [f"no {name}" for name in sorted(COUNT | FLAG) if not found[name]]
    # A record of who waits, a request to stop, the two counts: four stores at least.
    told += ["fewer than four stores for other processors"] * (found["st.release.sys.global.u64"] < 4)
    told += [f"{name} where lines are expected" for name in found if by == "LL" and "v2" in name]
    told += ["no line is stored whole"] * (by == "LL" and not found[LINE])
    told += [f"no {name}" for name in sorted(PARTS) if by == "LL128" and not found[name]]
    # All else by LL128 is loaded and stored by words or elements: no other access has the size of a part.
    told += [f"{name} for parts" for name in found if by == "LL128" and "v2" in name and name not in PARTS]
    # Data of a peer must not come from this multiprocessor's first cache.
    told += [name for name in found if name.startswith("ld.global") and ".v4" in name]
    return told


@pytest.mark.parametrize(
    ("architecture", "by"), chessboard(ARCHITECTURES, ["Simple", "LL", "LL128"], one_in=3)
)
def test_orders_and_scopes(architecture, by):
    assert findings(instructions(architecture, by), by) == []


@pytest.mark.parametrize(
    ("old", "new", "by"),
    [
        ("st.release.sys.global", "st.relaxed.sys.global", "Simple"),
        ("ld.acquire.sys.global", "ld.relaxed.sys.global", "Simple"),
        ("st.release.sys.global", "st.release.gpu.global", "Simple"),
        ("ld.acquire.sys.global", "ld.acquire.gpu.global", "LL"),
        ("st.release.gpu.global", "st.release.cta.global", "LL"),
        ("ld.acquire.gpu.global", "ld.acquire.cta.global", "Simple"),
        ("st.release.gpu.global", "st.global", "Simple"),
        ("ld.volatile.global.v4.u32", "ld.global.v4.u32", "Simple"),
        ("st.volatile.global.v4.u32", "st.global.v4.u32", "LL"),
        ("st.volatile.global.v2.u64", "st.global.v2.u64", "LL128"),
        ("ld.volatile.global.v2.u64", "ld.global.v2.u64", "LL128"),
        ("st.release.sys.global", "st.release.gpu.global", "LL128"),
    ],
)
def test_a_dropped_order_or_a_narrower_scope_is_found(old, new, by):
    def change(text):
        assert old in text
        return text.replace(old, new)

    assert findings(instructions(90, by, change), by) != []


@pytest.mark.parametrize(("dtype", "architecture"), chessboard(SUMS, [90, 100]))
def test_what_switches_do_has_the_scope_of_the_system(dtype, architecture):
    text = ptx_of(architecture, "Simple", dtype=dtype, multimem=True)
    assert set(re.findall(r"multimem\.[\w.:]+", text)) == SPREADS | {SUM + one for one in SUMS[dtype]}


def test_aliases_are_ordered_before_and_after_what_a_switch_does():
    text = ptx_of(90, "Simple", multimem=True)
    first, last = (re.search(r"multimem\.", text).start(), text.rindex("multimem."))
    assert "fence.proxy.alias" in text[:first] and "fence.proxy.alias" in text[last:]
    found = Counter(ORDERED.findall(text))
    del found["fence.proxy.alias"]
    assert findings(found, "Simple") == []
    assert not instructions(90, "Simple")["fence.proxy.alias"]
