"""A rank order as text: the rank of each host's slots, the predicted gain, and the bound on any gain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ccctl import console
from ccctl.render import Column, Say, figures, print_table, seconds
from probes.base import format_size, plural

if TYPE_CHECKING:
    from synth.rank_order import HostRanks, RankOrder

__all__ = ["draw", "summary"]

_MOST_ROWS = 32
# If no order gains more than this, the bound on the gain says nothing more.
_KEPT = 1.005


def summary(found: RankOrder) -> dict[str, Any]:
    """Return what ``--json`` prints."""
    return figures(found.algorithm, "library algorithm=name collective=kind") | figures(
        found,
        "network size_bytes hosts=after.*.host ranks changed as_it_comes_s predicted_s=time_s bound_s gain "
        "most_gain exact",
    )


def draw(found: RankOrder, say: Say = console.data) -> None:
    """Print the new order if it gains enough, the predicted times, and the bound on any gain."""
    algorithm = found.algorithm
    say(
        f"{algorithm}, {algorithm.kind} of {format_size(found.size_bytes)} on {found.network}: "
        f"{plural(len(found.after), 'host')}, {plural(len(found.ranks), 'rank')}"
    )
    if found.changed:
        _draw_places(found, say)
        say(
            f"predicted: {seconds(found.as_it_comes_s)} in the order given, {seconds(found.time_s)} in this "
            f"one: {found.gain:.2f}x as fast"
        )
    else:
        as_given = seconds(found.as_it_comes_s)
        say(f"the order given stays, predicted {as_given}: the best order found gains less than 2 %")
        if found.most_gain < _KEPT:
            return
    how = "all orders were timed" if found.exact else "a proven bound, which may be out of reach"
    say(f"no order is more than {found.most_gain:.2f}x as fast ({seconds(found.bound_s)}: {how})")


def _draw_places(found: RankOrder, say: Say) -> None:
    """Print the hosts in their new order."""
    came, hosts = [one.host for one in found.before], found.after
    columns = (
        Column("place", lambda place: place),
        Column("host", lambda place: hosts[place].host),
        Column(
            "gets ranks", lambda place: _ranks(hosts[place], sum(len(host.ranks) for host in hosts[:place]))
        ),
        Column("place before", lambda place: came.index(hosts[place].host)),
    )
    print_table(columns, range(len(hosts)), say, most=_MOST_ROWS, noun="hosts")


def _ranks(host: HostRanks, first: int) -> str:
    """Return a host's ranks, and in brackets their slots if these are in another order."""
    last = first + len(host.ranks) - 1
    ranks = str(first) if last == first else f"{first}-{last}"
    if host.slots == tuple(range(len(host.slots))):
        return ranks
    return f"{ranks} (slots {','.join(map(str, host.slots))})"
