"""Policies over arrivals as text, as one object, and as a table of iterations."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

from ccctl import console
from ccctl.render import percent, seconds
from probes.base import plural

if TYPE_CHECKING:
    from exec.relays import CollectiveCosts, Replay
    from probes.base import Floats

__all__ = ["decisions", "draw", "summary"]


def draw(replay: Replay, costs: CollectiveCosts, cycle_s: float) -> None:
    """Print cost, ratio and completion of each policy, and how often each rank relays."""
    told = summary(replay, costs, cycle_s)
    last = told["last_ready_s"]
    console.data(
        f"{plural(told['iterations'], 'iteration')} of {told['ranks']} ranks, the last ready "
        f"{seconds(last['mean'])} after the first (p99 {seconds(last['p99'])}); a cycle is {seconds(cycle_s)}"
    )
    console.data("")
    rows = [
        (
            name.replace("_", " "),
            *_times(one["cost_s"]),
            _ratio(one["ratio"]["mean"]),
            _ratio(one["ratio"]["max"]),
            percent(one["went_early"]),
        )
        for name, one in told["policies"].items()
    ]
    console.table(("policy: cost", "mean", "p50", "p99", "over best", "worst", "went early"), rows)
    if costs.has_phases:
        console.data("")
        rows = [
            (name.replace("_", " "), *_times(one["completion_s"]), *_times(one["after_last_ready_s"]))
            for name, one in told["policies"].items()
        ]
        console.table(("policy: done", "mean", "p50", "p99", "after last rank", "p50", "p99"), rows)
    console.data("")
    relays = [(rank, percent(share)) for rank, share in enumerate(told["relay_probability"])]
    console.table(("rank", "relays"), relays)
    console.data(
        f"break even costs {_ratio(told['policies']['break_even']['ratio']['max'])} times the optimum at "
        f"worst (proven limit: {_ratio(told['ratio_bound_max'])} times)"
    )
    if told["declared_faulty"]:
        console.data(
            f"a late rank would have been declared dead in {plural(told['declared_faulty'], 'iteration')}"
        )


def summary(replay: Replay, costs: CollectiveCosts, cycle_s: float) -> dict[str, Any]:
    """Return the replay as plain values; infinite ratios (to a cost of 0) are None."""
    policies: dict[str, Any] = {}
    for name, one in replay.policies.items():
        ratios = replay.ratios(name)
        told: dict[str, Any] = {
            "cost_s": _spread(one.cost_s),
            "ratio": {"mean": _finite(float(ratios.mean())), "max": _finite(float(ratios.max()))},
            "went_early": float(one.went.mean()),
        }
        if one.completion_s is not None:
            told["completion_s"] = _spread(one.completion_s)
            told["after_last_ready_s"] = _spread(one.completion_s - replay.arrivals.last_s)
        policies[name] = told
    return {
        "iterations": replay.arrivals.iterations,
        "ranks": replay.arrivals.ranks,
        "cycle_s": cycle_s,
        "whole_s": costs.whole_s,
        "last_ready_s": _spread(replay.arrivals.last_s),
        "policies": policies,
        "ratio_bound_max": _finite(float(replay.bound.max())),
        "relay_probability": replay.relayed.mean(axis=0).tolist(),
        "declared_faulty": int(replay.declared_faulty.any(axis=1).sum()),
    }


def decisions(replay: Replay) -> str:
    """Return CSV with a row for each iteration: break-even's decision, and each policy's cost in seconds."""
    lines = io.StringIO()
    table = csv.writer(lines, lineterminator="\n")
    names = list(replay.policies)
    completes = [name for name in names if replay.policies[name].completion_s is not None]
    table.writerow(
        [
            "iteration",
            "last_ready_s",
            "went_early",
            "relays",
            *(f"{name}_cost_s" for name in names),
            *(f"{name}_completion_s" for name in completes),
        ]
    )
    columns = [replay.policies[name].cost_s.tolist() for name in names]
    columns += [_listed(replay.policies[name].completion_s) for name in completes]
    went = replay.policies["break_even"].went.tolist()
    rows = zip(replay.arrivals.last_s.tolist(), went, replay.relayed, *columns, strict=True)
    for iteration, (last_s, early, relayed, *values) in enumerate(rows):
        relays = " ".join(map(str, relayed.nonzero()[0].tolist()))
        table.writerow([iteration, last_s, int(early), relays, *values])
    return lines.getvalue()


def _listed(column: Floats | None) -> list[float]:
    return [] if column is None else column.tolist()


def _times(spread: dict[str, float]) -> tuple[str, str, str]:
    return seconds(spread["mean"]), seconds(spread["p50"]), seconds(spread["p99"])


def _spread(values_s: Floats) -> dict[str, float]:
    import numpy as np

    p50, p99 = np.percentile(values_s, [50, 99]).tolist()
    return {"mean": float(values_s.mean()), "p50": p50, "p99": p99, "max": float(values_s.max())}


def _ratio(value: float | None) -> str:
    return "∞" if value is None else f"{value:.2f}"


def _finite(value: float) -> float | None:
    return value if value < float("inf") else None
