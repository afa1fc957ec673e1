"""A rank order as text: the rank of each host's slots, the predicted gain, and the bound on any gain."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ccctl import console
from ccctl.render import figures, seconds
from probes.base import format_size, plural

if TYPE_CHECKING:
    from synth.rank_order import HostRanks, RankOrder

__all__ = ["draw", "summary"]

_MOST_ROWS = 32


def draw(found: RankOrder, say: Callable[[str], None] = console.data) -> None:
    """Print the hosts in order, and the predicted times."""
    algorithm, hosts = found.algorithm, found.after
    say(
        f"{algorithm}, {algorithm.kind} of {format_size(found.size_bytes)} on {found.network}: "
        f"{plural(len(hosts), 'host')}, {plural(len(found.ranks), 'rank')}"
    )
    came = {one.host: number for number, one in enumerate(found.before)}
    rows, first = [], 0
    for place, one in enumerate(hosts):
        rows.append([str(place), one.host, _ranks(one, first), str(came[one.host])])
        first += len(one.ranks)
    console.say_table(say, ["place", "host", "ranks", "was at"], rows[:_MOST_ROWS])
    if len(rows) > _MOST_ROWS:
        say(f"… and {len(rows) - _MOST_ROWS} more hosts")
    how = "all orders were timed" if found.exact else "a proven bound"
    say(
        f"predicted: {seconds(found.as_it_comes_s)} in the order given, {seconds(found.time_s)} in this one: "
        f"{found.gain:.2f}x as fast"
    )
    say(f"no order is more than {found.most_gain:.2f}x as fast ({seconds(found.bound_s)}: {how})")


def summary(found: RankOrder) -> dict[str, Any]:
    """Return what ``--json`` prints."""
    return {
        "network": found.network,
        "library": found.algorithm.library,
        "algorithm": found.algorithm.name,
        "collective": found.algorithm.kind,
        "size_bytes": found.size_bytes,
        "hosts": [one.host for one in found.after],
        **figures(found, "ranks changed as_it_comes_s"),
        "predicted_s": found.time_s,
        **figures(found, "bound_s gain most_gain exact"),
    }


def _ranks(host: HostRanks, first: int) -> str:
    """Return a host's ranks, and in brackets their slots if these are in another order."""
    last = first + len(host.ranks) - 1
    told = str(first) if last == first else f"{first}-{last}"
    if host.slots == tuple(range(len(host.slots))):
        return told
    return f"{told} (slots {','.join(map(str, host.slots))})"
