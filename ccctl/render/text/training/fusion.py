"""Fusion plans as text and as one object: the methods side by side, and the buckets of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ccctl import console
from ccctl.render import about, percent, seconds
from probes.base import plural

if TYPE_CHECKING:
    from synth.fusion import FusionPlan, RingCosts

__all__ = ["costs_line", "draw", "table"]

_MOST_BUCKETS = 32


def draw(plan: FusionPlan) -> None:
    """Print the time of an iteration, and the buckets in the order in which they are communicated."""
    buffer = f", buffer {about(plan.buffer_bytes)}" if plan.buffer_bytes else ""
    console.data(f"{plan.model} by {plan.method}{buffer}: {plural(plan.buckets, 'bucket')}")
    console.data(costs_line(plan.costs))
    console.data(
        f"iteration {seconds(plan.iteration_s)}: {seconds(plan.compute_s)} of computation, "
        f"{seconds(plan.exposed_s)} of exposed communication; speed-up {plan.speedup:.3g} "
        f"of at most {plan.speedup_max:.3g}"
    )
    console.table(("bucket", "tensors", "bytes", "first", "last", "from", "to"), _buckets(plan))
    if plan.buckets > _MOST_BUCKETS:
        console.data(f"… and {plan.buckets - _MOST_BUCKETS} more buckets")


def costs_line(costs: RingCosts) -> str:
    """Return one line with the assumed cost of collectives."""
    rate = f"{1e-9 / costs.beta_s_per_byte:.3g} GB/s" if costs.beta_s_per_byte else "no limit"
    return f"{costs.ranks} ranks, a ring: alpha {seconds(costs.alpha_s)}, bandwidth {rate}"


def table(plans: Mapping[str, FusionPlan]) -> None:
    """Print a row for each method: its time, its exposed communication, its speed-up."""
    fastest_s = min(plan.iteration_s for plan in plans.values())
    rows = [
        (
            name,
            plan.buckets,
            about(plan.buffer_bytes) if plan.buffer_bytes else "-",
            seconds(plan.iteration_s),
            seconds(plan.exposed_s),
            f"{plan.speedup:.1f}",
            percent(plan.speedup / plan.speedup_max),
            "fastest" if plan.iteration_s == fastest_s else "",
        )
        for name, plan in plans.items()
    ]
    console.table(("method", "buckets", "buffer", "iteration", "exposed", "speed-up", "of S_max", ""), rows)


def _buckets(plan: FusionPlan) -> list[tuple[object, ...]]:
    import numpy as np

    line = plan.timeline
    rows: list[tuple[object, ...]] = []
    for bucket in range(min(plan.buckets, _MOST_BUCKETS)):
        inside = np.flatnonzero(plan.bucket == bucket)
        sent = (line.on_network == 1) & (line.item == bucket)
        rows.append(
            (
                bucket,
                len(inside),
                about(int(plan.tensor_bytes[inside].sum())),
                plan.tensors[inside[0]],
                plan.tensors[inside[-1]],
                seconds(float(line.start_s[sent].min(initial=plan.iteration_s))),
                seconds(float(line.end_s[sent].max(initial=0.0))),
            )
        )
    return rows
