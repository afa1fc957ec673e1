"""Iterations as SVG: the tasks of processor and network over time, for each method."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ccctl.render import about as bytes_about, seconds
from ccctl.render.svg import Drawing, above, box, fitted, legend, text, text_width, time_axis
from probes.base import plural

if TYPE_CHECKING:
    from synth.fusion import FusionPlan

__all__ = ["picture", "pictures"]

_LANE, _TOP, _HEAD, _GAP, _RIGHT = 16, 4, 18, 10, 20
# In the order of synth.fusion.timeline.KINDS; Okabe and Ito's colours.
_COLOURS = ("#0072b2", "#56b4e9", "#d55e00", "#e69f00", "#cc79a7")
# Gaps between blocks of one colour that are narrower than this are invisible.
_SEEN = 0.3


def pictures(plan: FusionPlan, width: int) -> list[Drawing]:
    """Return one iteration of the plan; each block of the network is a bucket."""
    return [picture({plan.method: plan}, width)]


def picture(plans: Mapping[str, FusionPlan], width: int) -> Drawing:
    """Return a picture with a lane for each plan's kinds of tasks, on one time scale."""
    from synth.fusion import KINDS

    longest_s = max(plan.timeline.time_s for plan in plans.values()) or 1.0
    left = 12 + max(map(text_width, KINDS))
    scale = (width - left - _RIGHT) / longest_s
    parts, y = [], float(_TOP)
    for name, plan in plans.items():
        buffer = f", buffer {bytes_about(plan.buffer_bytes)}" if plan.buffer_bytes else ""
        said = (
            f"{name}{buffer}, {plural(plan.buckets, 'bucket')}: {seconds(plan.iteration_s)}, "
            f"{seconds(plan.exposed_s)} of it exposed communication"
        )
        parts.append(text(fitted(said, width - 12), 4, y + 12, kind="axis"))
        y += _HEAD
        for kind in sorted(set(plan.timeline.kind.tolist())):
            parts.append(text(KINDS[kind], left - 6, y + 12, anchor="end"))
            parts.append(box(left, y, plan.timeline.time_s * scale, _LANE - 2, colour="soft"))
            parts += _blocks(plan, kind, left, y, scale)
            y += _LANE
        y += _GAP
    parts += time_axis(longest_s, left, y - 4, width - left - _RIGHT)
    used = sorted({kind for plan in plans.values() for kind in plan.timeline.kind.tolist()})
    signs = [
        (box(8, 0, 20, 12, colour=_COLOURS[kind]), f"{KINDS[kind]}, {'network' if kind > 1 else 'processor'}")
        for kind in used
    ]
    drawn, height = legend([*signs, ("", "numbers: buckets")], 8, width, y + 42)
    one = next(iter(plans.values()))
    title = f"{one.model}: one iteration on {plural(one.ranks, 'rank')}, predicted"
    about = "What the processor computes and what the network carries meanwhile, a block for each bucket."
    return Drawing(title, about, width, y + 42 + height + 8, (*parts, *drawn))


def _blocks(plan: FusionPlan, kind: int, left: float, top: float, scale: float) -> Iterator[str]:
    """Yield a rectangle for each task; tasks without a visible gap share one."""
    line = plan.timeline
    rows = (line.kind == kind).nonzero()[0]
    runs: list[tuple[float, float, int]] = []
    for item, start, end in zip(
        line.item[rows].tolist(),
        (line.start_s[rows] * scale).tolist(),
        (line.end_s[rows] * scale).tolist(),
        strict=True,
    ):
        # Merge layers, but keep buckets apart.
        one = item if kind > 1 else -1
        if runs and start - runs[-1][1] < _SEEN and (one == runs[-1][2] or end - start < 2):
            runs[-1] = (runs[-1][0], end, one if one == runs[-1][2] else -1)
        else:
            runs.append((start, end, one))
    edge = " class='s-paper' stroke-width='0.7'" if kind > 1 else ""
    for start, end, bucket in runs:
        if end <= start:
            continue
        place = f"x='{left + start:.2f}' y='{top:.1f}' width='{end - start:.2f}' height='{_LANE - 2}'"
        yield f"<rect {place} fill='{_COLOURS[kind]}'{edge}/>"
        if bucket >= 0 and text_width(str(bucket), 11) < end - start - 3:
            middle = left + (start + end) / 2
            yield text(str(bucket), middle, top + 11, anchor="middle", size=11, colour=above(_COLOURS[kind]))
