"""Iterations as SVG: for each method what the processor and the network do, over time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ccctl.render.units import seconds
from probes.xml_text import as_content

if TYPE_CHECKING:
    from synth.fusion.plan import FusionPlan

__all__ = ["picture"]

_LEFT, _WIDTH, _LANE, _GAP, _TOP = 150, 900, 16, 12, 50
# In the order of synth.fusion.timeline.KINDS; Okabe and Ito's colours.
_COLOURS = ("#0072b2", "#56b4e9", "#d55e00", "#e69f00", "#cc79a7")
_NAMES = ("backward", "forward", "reduce_scatter", "all_gather", "all_reduce")
# Narrower than this between two blocks of one colour nothing is seen.
_SEEN = 0.3


def picture(plans: Mapping[str, FusionPlan]) -> bytes:
    """Two lanes for each plan, processor above network, all on one scale of time."""
    longest_s = max(plan.timeline.time_s for plan in plans.values())
    height = _TOP + len(plans) * (2 * _LANE + _GAP) + 30
    whole = _LEFT + _WIDTH + 90
    title = next(iter(plans.values())).model
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{whole}" height="{height}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{whole}" height="{height}" fill="#ffffff"/>',
        f'<text x="4" y="16" font-size="13">{as_content(title)}: one iteration</text>',
    ]
    for number, (name, colour) in enumerate(zip(_NAMES, _COLOURS, strict=True)):
        x = _LEFT + 130 * number
        parts.append(f'<rect x="{x}" y="26" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{x + 16}" y="36">{name}</text>')
    for row, (name, plan) in enumerate(plans.items()):
        y = _TOP + row * (2 * _LANE + _GAP)
        end = _LEFT + _WIDTH * plan.timeline.time_s / longest_s
        parts.append(f'<text x="4" y="{y + _LANE + 4}">{as_content(name)}</text>')
        parts.append(
            f'<rect x="{_LEFT}" y="{y}" width="{end - _LEFT:.1f}" height="{2 * _LANE}" fill="#f2f2f2"/>'
        )
        parts += _blocks(plan, y, _WIDTH / longest_s)
        parts.append(f'<text x="{end + 4:.1f}" y="{y + _LANE + 4}">{seconds(plan.timeline.time_s)}</text>')
    return "\n".join([*parts, "</svg>\n"]).encode()


def _blocks(plan: FusionPlan, top: int, width_per_s: float) -> list[str]:
    """A rectangle for each task; those of one kind that nothing seen divides are one."""
    line = plan.timeline
    found: list[str] = []
    for resource in (0, 1):
        runs: list[tuple[int, float, float, int]] = []
        rows = (line.on_network == resource).nonzero()[0]
        for kind, item, start, end in zip(
            line.kind[rows].tolist(),
            line.item[rows].tolist(),
            (line.start_s[rows] * width_per_s).tolist(),
            (line.end_s[rows] * width_per_s).tolist(),
            strict=True,
        ):
            # Layers flow into each other, buckets are told apart.
            one = -1 if resource == 0 else item
            if (
                runs
                and runs[-1][0] == kind
                and start - runs[-1][2] < _SEEN
                and (one == runs[-1][3] or end - start < 2)
            ):
                runs[-1] = (kind, runs[-1][1], end, one)
            else:
                runs.append((kind, start, end, one))
        edge = ' stroke="#ffffff" stroke-width="0.5"' if resource else ""
        found += [
            f'<rect x="{_LEFT + start:.2f}" y="{top + _LANE * resource}" width="{end - start:.2f}" '
            f'height="{_LANE - 1}" fill="{_COLOURS[kind]}"{edge}/>'
            for kind, start, end, _ in runs
            if end > start
        ]
    return found
