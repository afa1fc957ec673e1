"""The output of an adaptive run: its events as they happen, and the results of its requests."""

from __future__ import annotations

import statistics
from collections import Counter
from typing import TYPE_CHECKING, Any

from ccctl import console
from ccctl.render import figures, seconds
from probes.base import plural

if TYPE_CHECKING:
    from exec.adaptive import IterationsReport, SessionEvent

__all__ = ["draw", "event_line", "summary"]


def event_line(event: SessionEvent) -> str:
    """Return one line about an event of a session."""
    took = f" in {seconds(event.seconds)}" if event.seconds else ""
    stood = f", the job stood still for {seconds(event.stood_s)}" if event.stood_s else ""
    return f"{event.at_s:8.2f} s  {_words(event)}{took}{stood}"


def summary(report: IterationsReport) -> dict[str, Any]:
    """Return the object of --json, with times in seconds."""
    took_s = [
        float(done - ready)
        for time in report.times
        for ready, done in zip(time.ready_s, time.done_s, strict=True)
    ]
    return {
        "iterations": max(time.first + len(time.ready_s) for time in report.times),
        "ranks": len(report.members),
        **figures(report, "lost wrong setup_s"),
        "median_s": statistics.median(took_s),
        "p99_s": sorted(took_s)[int(0.99 * (len(took_s) - 1))],
        "makespan_s": max(float(time.done_s[-1]) for time in report.times)
        - min(float(time.ready_s[0]) for time in report.times),
        "relayed": sum(len(seen.parts) > 1 for seen in report.seen),
        "stood_s": sum(event.stood_s for event in report.events),
        "events": dict(Counter(event.what for event in report.events)),
    }


def draw(result: dict[str, Any]) -> None:
    """Print the results of the requests from the object of --json."""
    console.data(
        f"{plural(result['iterations'], 'iteration')} on {plural(result['ranks'], 'rank')} in "
        f"{seconds(result['makespan_s'])}: median {seconds(result['median_s'])}, 99 % within "
        f"{seconds(result['p99_s'])}, {result['wrong']} wrong elements"
    )
    if result["relayed"]:
        console.data(
            f"late ranks: {plural(result['relayed'], 'request')} began without them; they passed data on, "
            "and their own data was added later"
        )
    for rank, how in result["lost"].items():
        console.data(f"lost: rank {rank} {how}")


def _words(event: SessionEvent) -> str:
    detail = event.detail
    if event.what == "planned":
        gain = f"{100 * (detail['gain'] - 1):.0f} % faster" if detail["changed"] else "no schedule is faster"
        return f"planned again for the links as they are now: {gain}"
    if event.what == "lost":
        ranks = ", ".join(f"rank {rank} {how}" for rank, how in detail["ranks"].items())
        return f"lost: {ranks}; epoch {detail['epoch']}, regrouped"
    if event.what == "joined":
        ranks = ", ".join(f"rank {rank}" for rank in detail["ranks"])
        return f"joined: {ranks}; epoch {detail['epoch']}, regrouped"
    if event.what == "rolled back":
        return (
            f"went back from schedules {detail['version']}: runs took {seconds(detail['after_s'])}, "
            f"before {seconds(detail['before_s'])}"
        )
    if event.what == "disbelieved":
        gain = f"{100 * (detail['gain'] - 1):.0f} % faster"
        why = {
            "unexplained": "the links were measured slow, but runs are not slower",
            "too small": "too small a gain to trust after wrong predictions",
        }
        return f"kept the schedules, though others are predicted {gain}: {why[detail['why']]}"
    if event.what == "drift":
        return f"drift: requests take {seconds(detail['now_s'])}, expected {seconds(detail['expected_s'])}"
    return _WORDS.get(event.what, event.what).format(**detail)


_WORDS = {
    "resumed": "resumed at request {at}",
    "swapped": "swapped to schedules {version}",
    "built": "prepared schedules {version} while the job runs",
    "guessed": "assumed the links: a rank was lost while they were measured",
    "measured": "measured the links",
}
