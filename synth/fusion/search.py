"""The best buffer in the simulation, by trying many: what tuning on real runs approaches."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np

from synth.fusion.costs import RingCosts
from synth.fusion.methods import DEFAULT_BUFFER_BYTES, Overheads, fusion_plan
from synth.fusion.model import Model
from synth.fusion.plan import FusionPlan

__all__ = ["BUFFER_BYTES", "best_plan"]

_MIB = 1 << 20
# The range in which the paper searches (Sec. IV-B).
BUFFER_BYTES = (_MIB, 100 * _MIB)
_BUFFERS = 40
_CYCLES_S = (1e-3, 5e-3, 10e-3)


def best_plan(model: Model, costs: RingCosts, method: str, overheads: Overheads | None = None) -> FusionPlan:
    """The fastest plan of ``method`` over its own buffer and 40 from 1 to 100 MiB, evenly in their logarithm.

    Horovod's cycle is tuned with it, over 1, 5 and 10 ms and that of ``overheads``.
    """
    extra = overheads or Overheads()
    buffers = [DEFAULT_BUFFER_BYTES[method], *np.geomspace(*BUFFER_BYTES, _BUFFERS).astype(int).tolist()]
    cycles = sorted({*_CYCLES_S, extra.cycle_s}) if method == "horovod" else [extra.cycle_s]
    plans = (
        fusion_plan(model, costs, method, buffer, replace(extra, cycle_s=cycle))
        for cycle, buffer in product(cycles, buffers)
    )
    return min(plans, key=lambda plan: plan.iteration_s)
