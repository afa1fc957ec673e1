"""Memory order and scope of the kernels' flags, read in their PTX."""

import re

import pytest
from cubins import NVRTC
from drawn_examples import chessboard
from flags_in_ptx import ARCHITECTURES, SPREADS, SUM, SUMS, findings, instructions, ptx_of

pytestmark = pytest.mark.skipif(not NVRTC, reason="NVRTC is not installed (cuda-bindings, nvidia-cuda-nvrtc)")


@pytest.mark.parametrize(
    ("architecture", "by"), chessboard(ARCHITECTURES, ["Simple", "LL", "LL128"], one_in=3)
)
def test_orders_and_scopes(architecture, by):
    assert findings(instructions(ptx_of(architecture, by)), by) == []


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
    text = ptx_of(90, by)
    assert old in text
    assert findings(instructions(text.replace(old, new)), by) != []


@pytest.mark.parametrize(("dtype", "architecture"), chessboard(SUMS, [90, 100]))
def test_what_switches_do_has_the_scope_of_the_system(dtype, architecture):
    text = ptx_of(architecture, "Simple", dtype=dtype, multimem=True)
    assert set(re.findall(r"multimem\.[\w.:]+", text)) == SPREADS | {SUM + one for one in SUMS[dtype]}


def test_aliases_are_ordered_before_and_after_what_a_switch_does():
    text = ptx_of(90, "Simple", multimem=True)
    first, last = (re.search(r"multimem\.", text).start(), text.rindex("multimem."))
    assert "fence.proxy.alias" in text[:first] and "fence.proxy.alias" in text[last:]
    found = instructions(text)
    del found["fence.proxy.alias"]
    assert findings(found, "Simple") == []
    assert not instructions(ptx_of(90, "Simple"))["fence.proxy.alias"]
