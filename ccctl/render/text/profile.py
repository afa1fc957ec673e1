"""A profile as matrices with senders as rows and receivers as columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ccctl import console
from ccctl.render import Column, figures, percent, print_table, seconds
from exec.launcher import fold
from probes.base import format_size, plural

if TYPE_CHECKING:
    from ccctl.artifacts import Artifact
    from probes.base import Floats, Indices
    from probes.link_costs import Profile
    from probes.localization import Bought
    from probes.profiling import Change, Drift

__all__ = ["draw", "draw_drift", "say", "say_offer", "summary"]

# A matrix of more ranks would be wider than most terminals.
_WIDEST = 16
# The median of fewer links says little about a single link.
_FEWEST_COMPARED = 3
# The flags of slow links, with words on what is slow, too.
_SLOW_FLAGS = {
    "outlier": "",
    "slow_sender": ", as are the sender's other links",
    "slow_receiver": ", as are the receiver's other links",
}


def draw(profile: Profile) -> None:
    """Print the costs of links by kind and, for at most 16 ranks, the costs of each directed link."""
    links = profile.links
    hosts = list(dict.fromkeys(entry.host for entry in profile.ranks))
    named = ", ".join(hosts) if len(hosts) <= _WIDEST else fold(hosts)
    where = f"{plural(len(hosts), 'host')} ({named})"
    ranks = plural(len(profile.ranks), "rank")
    console.data(f"{ranks} on {where}, {plural(len(links.src), 'link')}, {profile.library}")
    if len(profile.ranks) <= _WIDEST:
        _matrix(profile, 1e-9 / links.beta_s_per_byte, "bandwidth, GB/s")
        _matrix(profile, 1e6 * links.alpha_s, "alpha (half a round trip), us")
    _kinds(profile)
    for line in _slowest(profile):
        console.data(line)
    if profile.host_copies:
        device = Column("GPU", lambda copies: profile.ranks[copies.rank].device)
        print_table((Column("rank", "rank"), device, *_HOST_COPIES), profile.host_copies)
    _memory(profile)
    for finding in profile.findings:
        console.data(f"finding: {finding}")


def say(profile: Profile, output: str) -> None:
    """Print one line about the file ``output``, and the findings, on stderr."""
    least, middle, most = _range(1e-9 / profile.links.beta_s_per_byte)
    console.note(
        f"{output}: {len(profile.links.src)} links between {len(profile.ranks)} ranks, "
        f"{least} to {most} GB/s, median {middle} GB/s, measured in {profile.seconds:.1f} s"
    )
    for line in _slowest(profile):
        console.note(line)
    for finding in profile.findings:
        console.note(f"finding: {finding}")


def say_offer(profile: Profile, bought: Bought) -> None:
    """Say which links were compared with what was bought, if none falls short; warn if none was compared."""
    places = dict(_by_place(profile))
    inside = "inside a host" in places and bought.inside_bytes_per_s is not None
    if "between hosts" not in places and not (inside and not profile.crowded_hosts):
        why = "its ranks share cores" if inside else "all links are inside one host"
        console.doubt(f"{bought.name} was not compared: {why}")
    elif "slow" not in profile.finding_kinds:
        where = "" if inside else " between hosts"
        console.note(
            f"compared with {bought.name}: no link{where} falls short by more than a tenth and its noise"
        )


def summary(profile: Profile, drift: Drift | None) -> dict[str, Any]:
    """Return the object of ``--json``; findings of ``drift`` come first."""
    import numpy as np

    bandwidth_gbs = 1e-9 / profile.links.beta_s_per_byte
    alpha_us = 1e6 * profile.links.alpha_s
    result = {
        "ranks": len(profile.ranks),
        "links": len(profile.links.src),
        "alpha_us_min": float(alpha_us.min()),
        "alpha_us_median": float(np.median(alpha_us)),
        "bandwidth_gbs_min": float(bandwidth_gbs.min()),
        "bandwidth_gbs_median": float(np.median(bandwidth_gbs)),
        "findings": [*(drift.findings if drift else ()), *profile.findings],
        "seconds": profile.seconds,
    }
    return result | {"drift": _changes(drift)} if drift else result


def _changes(drift: Drift) -> dict[str, Any]:
    names = "what quantity before now ratio explained_by_spread=allowed worse links"
    changes = [figures(change, names) for change in drift.changes]
    unsure = [figures(change, "quantity before now") for change in drift.unsure]
    return figures(drift, "compared gone new unmeasured added") | {"changes": changes, "unsure": unsure}


def draw_drift(drift: Drift, baseline: Artifact, now: Profile) -> None:
    """Print every change from ``baseline`` to ``now``, the worst first."""
    crowded = dict.fromkeys([*_shared_cores(baseline.body), *_shared_cores(now)])
    for finding in drift.findings:
        console.data(f"drift: {finding}")
    for note in drift.notes:
        console.data(f"changed: {note}")
    for change in drift.unsure:
        console.data(_unsure(change, crowded))
    if not drift.findings and not drift.unsure:
        links = plural(drift.compared, "link")
        console.data(f"no drift: {links} as fast as in {baseline.source}, within the noise of both")


def _unsure(change: Change, crowded: Iterable[str]) -> str:
    """Return a change that noise may explain, and the cause of the noise if it is known."""
    before, now = change.values
    medians = f"median {now}, was {before}"
    if why := "; ".join(crowded):
        return f"{medians}: too noisy to tell ({why}); measure both with one rank a core"
    return f"{medians}: too noisy to tell ({change.noise}); measure both again"


def _shared_cores(profile: Profile) -> list[str]:
    """Return a line on each host whose ranks share cores."""
    hosts = [entry.host for entry in profile.ranks]
    return [
        f"{hosts.count(host)} ranks share {plural(cores, 'core')} of {host}"
        for host, cores in profile.crowded_hosts.items()
    ]


def _range(values: Floats, form: Callable[[float], str] = "{:.3g}".format) -> tuple[str, str, str]:
    """Return the smallest, middle and largest of ``values`` as text."""
    import numpy as np

    return form(float(values.min())), form(float(np.median(values))), form(float(values.max()))


def _matrix(profile: Profile, values: Floats, title: str) -> None:
    ranks = len(profile.ranks)
    cells: list[list[str]] = [["-"] * ranks for _ in range(ranks)]
    for src, dst, value in zip(profile.links.src, profile.links.dst, values, strict=True):
        cells[src][dst] = f"{value:.3g}"
    rows = [[f"{rank} →", *row] for rank, row in enumerate(cells)]
    console.table(["", *map(str, range(ranks))], rows, title=title)


def _slowest(profile: Profile) -> Iterator[str]:
    """Yield a line on the slowest link inside hosts, and on that between hosts, beside the median link.

    The profile flags links that are slower than the others by more than noise explains. The links inside a
    host are left out if its ranks share cores and the profile flags none. A line says so.
    """
    import numpy as np

    from probes.profiling import Names

    links = profile.links
    host_of, crowded = [entry.host for entry in profile.ranks], profile.crowded_hosts
    names = Names(host_of)
    for name, chosen in _by_place(profile):
        rates = 1e-9 / links.beta_s_per_byte[chosen]
        if len(rates) < _FEWEST_COMPARED:
            continue
        row = int(chosen[int(rates.argmin())])
        flags = [one for one in links.flags[row].split(",") if one in _SLOW_FLAGS]
        if not flags and host_of[links.src[row]] == host_of[links.dst[row]] in crowded:
            continue
        others = "".join(_SLOW_FLAGS[one] for one in flags)
        normal = f"slower than noise explains{others}" if flags else "within what is normal for these links"
        share = percent(float(rates.min() / np.median(rates)))
        link = names.link(int(links.src[row]), int(links.dst[row]))
        yield f"slowest {name}: {link}, {rates.min():.3g} GB/s, {share} of the median link: {normal}"
    for shared in _shared_cores(profile):
        yield (
            f"{shared}: alphas may include waits for a core, and small differences between its links are not "
            "judged; start one rank a core"
        )


def _by_place(profile: Profile) -> Iterator[tuple[str, Indices]]:
    """Yield the rows of the links inside hosts, then of the links between hosts, if there are any."""
    import numpy as np

    host = np.array([entry.host for entry in profile.ranks])
    inside = host[profile.links.src] == host[profile.links.dst]
    for name, chosen in (("inside a host", inside), ("between hosts", ~inside)):
        if chosen.any():
            yield name, np.flatnonzero(chosen)


def _kinds(profile: Profile) -> None:
    """Print a row for the links inside hosts, and a row for the links between hosts."""
    links = profile.links
    rows = [
        (
            name,
            len(chosen),
            *_range(1e-9 / links.beta_s_per_byte[chosen]),
            *_range(links.alpha_s[chosen], seconds),
        )
        for name, chosen in _by_place(profile)
    ]
    console.table(("links", "count", "GB/s min", "median", "max", "alpha min", "median", "max"), rows)


_HOST_COPIES = (
    Column("to GPU, GB/s", lambda copies: 1e-9 / copies.to_device_beta_s_per_byte, "{:.3g}"),
    Column("from GPU", lambda copies: 1e-9 / copies.to_host_beta_s_per_byte, "{:.3g}"),
    Column("alpha to GPU", "to_device_alpha_s"),
    Column("alpha from GPU", "to_host_alpha_s"),
)


def _memory(profile: Profile) -> None:
    """Print the rates at which a core of each host copies and adds while all ranks work, by size."""
    for memory in profile.memory:
        costs = {"copy": memory.copy_s_per_byte, "add": memory.add_s_per_byte}
        if memory.fetch_s_per_byte:
            costs["read a peer's memory"] = memory.fetch_s_per_byte
            costs["the same, just written"] = memory.written_fetch_s_per_byte
        sizes = map(format_size, memory.sizes_bytes)
        rows = [
            (size, *(f"{1e-9 / cost:.3g}" for cost in values))
            for size, *values in zip(sizes, *costs.values(), strict=True)
        ]
        title = (
            f"memory of {memory.host}, GB/s a core while all ranks work (only predictions of runs use this)"
        )
        console.table(("block", *costs), rows, title=title)
