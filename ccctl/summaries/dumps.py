"""Late ranks, and the waits for them, in dumps of NCCL's RAS and PyTorch's flight recorder."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from ccctl import console
from ccctl.errors import FoundProblem
from ccctl.render import figures, percent, seconds
from probes.base import plural

if TYPE_CHECKING:
    from exec.benchmark.foreign import Inspected, Lag, Recorded

__all__ = ["judge", "tell"]

_MOST_LINES = 20


def tell(source: str, found: Recorded, timed: Inspected | None, *, json: bool) -> None:
    """Print the late ranks; for timed collectives, also how long ranks waited and for which rank."""
    if json:
        console.summary(
            {
                "source": source,
                **figures(found, "tool ranks communicators"),
                "late": [asdict(lag) for lag in found.lags],
                "links": len(found.sent.seconds),
                "waiting": [
                    {
                        **figures(one, "collective size_bytes calls transfer_s waited_s"),
                        "last": [{"rank": rank, "share": share} for rank, _, share in one.last],
                    }
                    for one in (timed.waiting if timed else ())
                ],
            }
        )
        return
    console.data(
        f"{found.tool}: {plural(found.ranks, 'rank')}, {plural(found.communicators, 'communicator')}"
    )
    for lag in found.lags[:_MOST_LINES]:
        console.data(_line(lag))
    if len(found.lags) > _MOST_LINES:
        console.data(f"… and {len(found.lags) - _MOST_LINES} more")
    if not found.lags:
        console.data("no rank holds the others up")
    for one in timed.waiting if timed else ():
        rank, _, share = one.last[0]
        console.data(
            f"{one.collective} of {one.size_bytes} bytes: {seconds(one.transfer_s)} of transfer after "
            f"{seconds(one.waited_s)} of waiting for the last rank, rank {rank} in {percent(share)} of "
            f"{plural(one.calls, 'call')}"
        )


def _line(lag: Lag) -> str:
    host = f" on {lag.host}" if lag.host else ""
    return f"{lag.what}: rank {lag.rank}{host} of {lag.communicator} {lag.text}"


def judge(source: str, found: Recorded) -> None:
    """Raise FoundProblem if a rank holds up others."""
    if found.lags:
        ranks = sorted({lag.rank for lag in found.lags})
        named = ", ".join(map(str, ranks[:16]))
        hold = "holds" if len(ranks) == 1 else "hold"
        raise FoundProblem(f"{source}: {plural(len(ranks), 'rank')} {hold} others up: {named}")
