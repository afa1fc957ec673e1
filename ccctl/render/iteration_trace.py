"""The trace of iterations for Perfetto: a processor and a network for each method."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ccctl.render.chrome_trace import Slices, Track
from probes.base import unsteered_json

if TYPE_CHECKING:
    from synth.fusion import FusionPlan, Model

__all__ = ["iteration_blocks", "iteration_tracks"]


def iteration_tracks(plans: Mapping[str, FusionPlan]) -> Iterator[Track]:
    """Yield two tracks for each method."""
    for group, name in enumerate(plans, start=1):
        yield Track(2 * group - 1, "processor", group, name)
        yield Track(2 * group, "network", group, name)


def iteration_blocks(model: Model, plans: Mapping[str, FusionPlan]) -> Iterator[Slices]:
    """Yield every pass of a layer and every collective of a bucket."""
    import numpy as np

    from synth.fusion import KINDS, REDUCE_SCATTER

    for group, plan in enumerate(plans.values(), start=1):
        line = plan.timeline
        size = np.zeros(plan.buckets, dtype=np.int64)
        np.add.at(size, plan.bucket, plan.tensor_bytes)
        names, args = [], []
        for kind, item in zip(line.kind.tolist(), line.item.tolist(), strict=True):
            collective = kind >= REDUCE_SCATTER
            what = f"bucket {item}" if collective else model.layers[item]
            names.append(unsteered_json(json.dumps(f"{KINDS[kind]} {what}", ensure_ascii=False))[1:-1])
            args.append(json.dumps({"bytes": int(size[item])} if collective else {"layer": item}))
        track = 2 * group - 1 + line.on_network
        yield Slices(np.full(len(names), group), track, line.start_s, line.end_s, names, args)
