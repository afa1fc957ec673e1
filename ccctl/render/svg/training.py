"""Pictures of training: a model, an iteration, a search for the buffer, groups that average, and a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from ccctl.render import about, seconds
from ccctl.render.svg.axes import SIZE, TIME, Axis, short
from ccctl.render.svg.chart import Chart, Series, charts, series
from ccctl.render.svg.drawing import COLOURS, Drawing, palette
from ccctl.render.svg.lanes import Block, Lane, LaneChart, heading, lanes, room
from probes.base import plural

if TYPE_CHECKING:
    from exec.training.workloads import TrainedMode, TrainingReport
    from probes.base import Floats
    from synth.fusion import FusionPlan, Model, Tuning
    from synth.groups import Groups

__all__ = ["fusion", "groups", "iterations", "model", "training", "tuning"]

_MOST_LAYERS, _MOST_RANKS, _MOST_POINTS = 48, 128, 40
_CELL, _GROUP_ROW, _LANE = 26, 18, 16
# The colours of the kinds of tasks, Okabe and Ito's, in the order of synth.fusion.timeline.KINDS.
_TASKS = ("#0072b2", "#56b4e9", "#d55e00", "#e69f00", "#cc79a7")
# Gaps that are shorter than this share of the time are not visible.
_GAP = 1 / 3000
# If the largest value is this many times the least, the axis is logarithmic, else linear.
_LARGE_RATIO = 20
# Points in the first _FIRST of the iterations are left out if they exceed all later points by more than
# _RANGES times the range of the later ones.
_FIRST, _RANGES = 0.2, 4


def model(made: Model, width: int) -> Iterator[Drawing]:
    """Yield two panels over the layers; with more than 48 layers, a point is the sum of several."""
    from ccctl.render.text import headline_of

    count = len(made.layers)
    folded = -(-count // _MOST_LAYERS)
    size = np.bincount(made.tensor_layer, weights=made.tensor_bytes, minlength=count)
    first = np.arange(0, count, folded)

    def line(name: str, colour: str, values: Floats) -> Series:
        return series(name, colour, 1 + first, np.add.reduceat(values, first))

    unit = "layer" if folded == 1 else f"layers, {folded} together"
    axis = Axis(f"{unit}, in forward order, of {count}", short, counted=True)
    passes = [
        line("backward pass", COLOURS[0], made.backward_s),
        line("forward pass", COLOURS[1], made.forward_s),
    ]
    yield charts(
        headline_of(made),
        f"What {plural(count, 'layer')} take in the forward and backward pass, and their gradients.",
        [
            Chart(axis, replace(TIME, title="time of a pass"), passes),
            Chart(axis, Axis("gradients (MB)", short), [line("gradients", COLOURS[2], size / 1e6)]),
        ],
        width,
    )


def tuning(made: Tuning, width: int) -> Iterator[Drawing]:
    """Yield time over buffer size, and over the number of trials; nothing without a trial."""
    if not made.trials:
        return
    taken, (best_bytes, best_s) = made.seconds.tolist(), made.best
    name, number = f"the best: {about(best_bytes)}, {seconds(best_s)}", range(1, made.trials + 1)
    # A linear axis for a small range, a logarithmic one for a large range.
    y = replace(TIME, title="time of an iteration", base=10 if max(taken) > _LARGE_RATIO * best_s else 0)
    by_size = [
        series("a trial", COLOURS[0], made.buffer_bytes, taken, joined=False),
        series(name, COLOURS[1], [best_bytes], [best_s], joined=False),
    ]
    by_number = [
        series("a trial", COLOURS[0], number, taken, joined=False),
        series("the best so far", COLOURS[2], number, accumulate(taken, min), dashed=True),
        series(name, COLOURS[1], [1 + taken.index(best_s)], [best_s], joined=False),
    ]
    yield charts(
        f"{made.subject}: {made.strategy}, {plural(made.trials, 'trial')}",
        "The seconds of an iteration over the buffer, and trial by trial with the best so far.",
        [
            Chart(replace(SIZE, title="buffer (bytes)"), y, by_size),
            Chart(Axis("trial", short, counted=True), y, by_number),
        ],
        width,
    )


def fusion(plan: FusionPlan, width: int) -> Iterator[Drawing]:
    """Yield one iteration of the plan; each block of the network is a bucket."""
    return iterations({plan.method: plan}, width)


def iterations(plans: Mapping[str, FusionPlan], width: int) -> Iterator[Drawing]:
    """Yield one picture, on one time scale, with a lane for each kind of task of each plan."""
    from synth.fusion import KINDS

    longest_s = max(plan.timeline.time_s for plan in plans.values()) or 1.0
    rows = []
    for name, plan in plans.items():
        buffer = f", buffer {about(plan.buffer_bytes)}" if plan.buffer_bytes else ""
        rows.append(
            heading(
                f"{name}{buffer}, {plural(plan.buckets, 'bucket')}: {seconds(plan.iteration_s)}, "
                f"{seconds(plan.exposed_s)} of it exposed communication"
            )
        )
        for kind in sorted(set(plan.timeline.kind.tolist())):
            rows.append(Lane(KINDS[kind], tuple(_tasks(plan, kind, longest_s))))
    one = next(iter(plans.values()))
    title = f"{one.model}: one iteration on {plural(one.ranks, 'rank')}, predicted"
    about_it = "What the processor computes and what the network carries meanwhile, a block for each bucket."
    chart = LaneChart(rows, TIME, _LANE, until=longest_s, ground=True)
    yield lanes(title, about_it, chart, width, [("", "numbers: buckets")])


def _tasks(plan: FusionPlan, kind: int, longest_s: float) -> Iterator[Block]:
    """Yield a block for each bucket on the network; on the processor, one between visible gaps."""
    from synth.fusion import KINDS

    line, on_network = plan.timeline, kind > 1
    name = f"{KINDS[kind]}, {'network' if on_network else 'processor'}"
    rows = np.flatnonzero(line.kind == kind)
    start_s, end_s = line.start_s[rows], line.end_s[rows]
    gap = start_s[1:] - end_s[:-1] >= _GAP * longest_s
    first = np.concatenate(([0], 1 + np.flatnonzero(gap | on_network)))
    last = np.concatenate((first[1:] - 1, [len(rows) - 1]))
    for begin, end, item in zip(
        start_s[first].tolist(), end_s[last].tolist(), line.item[rows[first]].tolist(), strict=True
    ):
        if end > begin:
            yield Block(begin, end, _TASKS[kind], name, str(item) if on_network else "")


def groups(made: Groups, width: int) -> Iterator[Drawing]:
    """Yield as many iterations as fit, for at most 128 ranks; equal numbers in a column are a group."""
    rack_of = {rank: number for number, rack in enumerate(made.racks) for rank in rack}
    number_of = [
        {rank: (number, group) for number, group in enumerate(division) for rank in group}
        for division in made.iterations
    ]
    labels = {rank: f"rank {rank}{', slow' if rank in made.slow_ranks else ''}" for rank in rack_of}
    columns = min(made.period, int(room(labels.values(), width) // _CELL))
    rows: list[Lane] = []
    for rank in list(rack_of)[:_MOST_RANKS]:
        rack = rack_of[rank]
        if rank == made.racks[rack][0]:
            slow = rack in made.slow_racks
            rows.append(heading(f"rack {rack}{', slow' if slow else ''}", alarm=slow))
        found = [number_of[at][rank] for at in range(columns)]
        blocks = [
            _member(at, number, len(group), len({rack_of[member] for member in group}))
            for at, (number, group) in enumerate(found)
        ]
        rows.append(Lane(labels[rank], tuple(blocks), alarm=rank in made.slow_ranks))
    notes = [("", "numbers: the groups of an iteration")]
    notes += [("", f"and {made.period - columns} more iterations")] if made.period > columns else []
    notes += [("", f"and {made.ranks - _MOST_RANKS} more ranks")] if made.ranks > _MOST_RANKS else []
    axis = Axis("iteration", short, counted=True)
    chart = LaneChart(rows, axis, _GROUP_ROW, until=columns, unit=_CELL, side="rank")
    title = f"{made.pattern.replace('_', ' ')}, period {made.period}, rho {made.rho:.4g}"
    yield lanes(
        f"{title}, {seconds(made.predicted_s)} an iteration",
        "Which ranks average their parameters together, iteration by iteration.",
        chart,
        width,
        notes,
    )


def _member(at: int, number: int, ranks: int, racks: int) -> Block:
    """Return the cell of a rank in iteration ``at``: the number of its group."""
    if ranks == 1:
        return Block(at, at + 1, "paper", "averages with none", edge="grid")
    if racks == 1:
        return Block(at, at + 1, palette(number), "a group within a rack", str(number))
    return Block(at, at + 1, palette(number), "a group of several racks", str(number), edge="ink")


def training(report: TrainingReport, width: int) -> Iterator[Drawing]:
    """Yield loss over iterations and error on held-out data over time, with a colour for each mode.

    Losses are smoothed over neighbours, as batches differ. Errors of 0 are left out on a logarithmic axis.
    """
    curves = [_losses(row) for row in report.rows]
    begin = _begin([point for curve in curves for point in curve])
    losses, errors = [], []
    for number, (row, curve) in enumerate(zip(report.rows, curves, strict=True)):
        shown = tuple(point for point in curve if point[0] >= begin)
        losses.append(Series(row.label, palette(number), shown))
        errors.append(series(row.label, palette(number), row.evaluated_s, 1 - row.accuracies))
    hidden = [y for curve in curves for x, y in curve if x < begin]
    yield charts(
        f"{report.model} on {report.ranks} ranks, {report.backend}",
        "Loss over iterations and error on held-out data over time: a line for each mode.",
        [
            _panel("loss", Axis("iteration", short, counted=True), losses),
            _panel("error on held-out data (share)", TIME, errors),
        ],
        width,
        [("", note) for note in _notes(report, hidden, begin)],
    )


def _panel(title: str, x: Axis, lines: Sequence[Series]) -> Chart:
    values = [y for line in lines for _, y in line.points if np.isfinite(y)]
    base = 10 if values and max(values) > _LARGE_RATIO * max(min(values), 0.0) else 0
    return Chart(x, Axis(title, short, base, fits=True), lines)


def _losses(row: TrainedMode) -> list[tuple[float, float]]:
    parts = np.array_split(np.arange(len(row.losses)), min(_MOST_POINTS, len(row.losses)) or 1)
    return [(float(part.mean()) + 1, float(row.losses[part].mean())) for part in parts if len(part)]


def _begin(points: Sequence[tuple[float, float]]) -> float:
    """Return the first iteration to draw, past early losses so large that they would flatten the others."""
    last = max((x for x, _ in points), default=0.0)
    early = [point for point in points if point[0] <= _FIRST * last]
    later = [y for x, y in points if x > _FIRST * last and np.isfinite(y)]
    if not early or not later:
        return 0.0
    most = max(later) + _RANGES * (max(later) - min(later))
    left_out = max((x for x, y in early if y > most), default=0.0)
    return min((x for x, _ in early if x > left_out), default=_FIRST * last)


def _notes(report: TrainingReport, hidden: Sequence[float], begin: float) -> Iterator[str]:
    """Yield the notes below the picture."""
    alike: dict[bytes, list[str]] = {}
    for row in report.rows:
        alike.setdefault(row.losses.tobytes(), []).append(row.label)
    for labels in alike.values():
        if len(labels) > 1:
            yield f"loss of {', '.join(labels)}: equal"
    if hidden:
        yield f"loss before iteration {begin:g}, up to {max(hidden):.3g}: not shown"
    starts = [f"{row.label} {seconds(row.start_s)}" for row in report.rows if row.start_s]
    if starts:
        yield f"start-up, by which the first iteration is longer than others, left out: {', '.join(starts)}"
