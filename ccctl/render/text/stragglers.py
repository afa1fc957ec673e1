"""Waiting policies replayed over arrival times: as one object, as text, and as a table of iterations."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

from ccctl import console
from ccctl.render import Column, percent, print_table, seconds
from probes.base import plural

if TYPE_CHECKING:
    from exec.stragglers import CollectiveCosts, Replay
    from probes.base import Floats

__all__ = ["decisions", "draw", "summary"]


def draw(result: dict[str, Any]) -> None:
    """Print the object of --json: the costs of each policy, and how often each rank relays."""
    last = result["last_ready_s"]
    console.data(
        f"{plural(result['iterations'], 'iteration')} of {result['ranks']} ranks, the last ready "
        f"{seconds(last['mean'])} after the first (p99 {seconds(last['p99'])}); "
        f"every {seconds(result['cycle_s'])} it is decided whether to wait on"
    )
    rows = [{"name": name.replace("_", " "), **one} for name, one in result["policies"].items()]
    relays = [{"rank": rank, "share": share} for rank, share in enumerate(result["relay_probability"])]
    phases = "completion_s" in rows[0]
    for columns, several in ((_COSTS, rows), (_COMPLETION, rows if phases else []), (_RELAYS, relays)):
        if several:
            console.data("")
            print_table(columns, several)
    console.data(
        "break even: waits until that has cost as much as to begin without the late ranks; extra: as much as "
        "that costs more than the collective of all; published: compares with the ranks that are ready now, "
        "as AdapCC's paper does"
    )
    console.data(
        f"break even took at most {_ratio(result['policies']['break_even']['ratio']['max'])} times the best "
        f"in hindsight (proven: never more than {_ratio(result['ratio_bound_max'])} times)"
    )
    if result["declared_faulty"]:
        console.data(
            f"a late rank would have been declared dead in {result['declared_faulty']} of "
            f"{plural(result['iterations'], 'iteration')}"
        )


def _ratio(value: float | None) -> str:
    return "∞" if value is None else f"{value:.2f}"


_NAMES = ("mean", "p50", "p99")
_COSTS = (
    Column("policy: waits + sends", "name"),
    *(Column(name, f"cost_s.{name}", seconds) for name in _NAMES),
    Column("times the best", lambda row: _ratio(row["ratio"]["mean"])),
    Column("at worst", lambda row: _ratio(row["ratio"]["max"])),
    Column("began without late ranks", "went_early", percent),
)
_COMPLETION = (
    Column("policy: done", "name"),
    *(Column(name, f"completion_s.{name}", seconds) for name in _NAMES),
    Column("after last rank", "after_last_ready_s.mean", seconds),
    *(Column(name, f"after_last_ready_s.{name}", seconds) for name in _NAMES[1:]),
)
_RELAYS = (Column("rank", "rank"), Column("iterations that began without it", "share", percent))


def summary(replay: Replay, costs: CollectiveCosts, cycle_s: float) -> dict[str, Any]:
    """Return the replay as plain values; infinite ratios (to a cost of 0) are None."""
    policies: dict[str, Any] = {}
    for name, policy in replay.policies.items():
        ratios = replay.ratios(name)
        result: dict[str, Any] = {
            "cost_s": _spread(policy.cost_s),
            "ratio": {"mean": _finite(float(ratios.mean())), "max": _finite(float(ratios.max()))},
            "went_early": float(policy.went.mean()),
        }
        if policy.completion_s is not None:
            result["completion_s"] = _spread(policy.completion_s)
            result["after_last_ready_s"] = _spread(policy.completion_s - replay.arrivals.last_s)
        policies[name] = result
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
    names = list(replay.policies)
    columns = {f"{name}_cost_s": replay.policies[name].cost_s for name in names}
    completion = {f"{name}_completion_s": replay.policies[name].completion_s for name in names}
    columns |= {name: column for name, column in completion.items() if column is not None}
    lines = io.StringIO()
    table = csv.writer(lines, lineterminator="\n")
    table.writerow(["iteration", "last_ready_s", "went_early", "relays", *columns])
    went = replay.policies["break_even"].went.tolist()
    values = (column.tolist() for column in columns.values())
    rows = zip(replay.arrivals.last_s.tolist(), went, replay.relayed, *values, strict=True)
    for iteration, (last_s, early, relayed, *costs) in enumerate(rows):
        relays = " ".join(map(str, relayed.nonzero()[0].tolist()))
        table.writerow([iteration, last_s, int(early), relays, *costs])
    return lines.getvalue()


def _spread(values_s: Floats) -> dict[str, float]:
    import numpy as np

    p50, p99 = np.percentile(values_s, [50, 99]).tolist()
    return {"mean": float(values_s.mean()), "p50": p50, "p99": p99, "max": float(values_s.max())}


def _finite(value: float) -> float | None:
    return value if value < float("inf") else None
