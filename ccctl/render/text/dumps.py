"""Late ranks, and the waits for them, in dumps of NCCL's RAS and PyTorch's flight recorder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ccctl import console
from ccctl.render import figures, percent, seconds
from probes.base import plural

if TYPE_CHECKING:
    from exec.benchmark.foreign import Inspected, Recorded

__all__ = ["draw", "summary"]

_MOST_LINES = 20


def summary(source: str, found: Recorded, timed: Inspected | None) -> dict[str, Any]:
    """Return the late ranks; for timed collectives, also how long ranks waited and for which rank."""
    return {
        "source": source,
        **figures(found, "tool ranks communicators late=lags unclear"),
        "links": len(found.sent.seconds),
        "waiting": [
            figures(one, "collective size_bytes calls transfer_s waited_s")
            | {"last": [{"rank": rank, "share": share} for rank, _, share in one.last]}
            for one in (timed.waiting if timed else ())
        ],
    }


def draw(result: dict[str, Any]) -> None:
    """Print the object of --json: a line for each late rank, and for each collective that was timed."""
    late = [_line(lag) for lag in result["late"]]
    ranks, communicators = plural(result["ranks"], "rank"), plural(result["communicators"], "communicator")
    more = [f"… and {len(late) - _MOST_LINES} more"] if len(late) > _MOST_LINES else []
    lines = [f"{result['tool']}: {ranks}, {communicators}", *late[:_MOST_LINES], *more]
    if not late and result["unclear"]:
        lines += [_line(lag) for lag in result["unclear"][:_MOST_LINES]]
        lines.append(
            "one dump cannot show whether they are late: take another after 10 s, and give the folder of both"
        )
    elif not late:
        lines.append("no rank holds the others up")
    for line in lines:
        console.data(line)
    for one in result["waiting"]:
        rank, share = one["last"][0].values()
        often = f"{percent(share)} of {plural(one['calls'], 'call')}"
        console.data(
            f"{one['collective']} of {one['size_bytes']} bytes: {seconds(one['transfer_s'])} of transfer "
            f"after {seconds(one['waited_s'])} of waiting for the last rank, rank {rank} in {often}"
        )


def _line(lag: dict[str, Any]) -> str:
    host = f" on {lag['host']}" if lag["host"] else ""
    return f"{lag['what']}: rank {lag['rank']}{host} of communicator {lag['communicator']} {lag['text']}"
