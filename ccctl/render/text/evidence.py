"""Evidence of other tools (checks of hosts, diagnostics, logs), and the job that NCCL's log describes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ccctl import console
from ccctl.render import about, figures
from probes.base import first_of, plural, some

if TYPE_CHECKING:
    from exec.benchmark.foreign import Evidence, NcclLog

__all__ = ["draw", "listed", "summary"]

_MOST_LINES = 40
_MOST_NAMED = 8
_MOST_RANKS = 64


def summary(source: str, found: list[Evidence], log: NcclLog | None) -> dict[str, Any]:
    """Return the object of --json: the evidence, and the job that NCCL's log describes, if any."""
    return {
        "source": source,
        "evidence": listed(found),
        "nccl": None if log is None else _job(log),
        "ok": not any(one.severity == "fault" for one in found),
    }


def listed(found: list[Evidence]) -> list[dict[str, Any]]:
    """Return the evidence as plain values."""
    return [
        figures(one, "tool host part kind severity text remedy value unit normal source") for one in found
    ]


def draw(result: dict[str, Any]) -> None:
    """Print the object of --json: the job, then a line for each piece of evidence."""
    for line in _job_lines(result["nccl"]) if result["nccl"] else ():
        console.data(line)
    lines = [line for one in result["evidence"] for line in _lines(one)] or [
        "nothing is wrong or unusual in it"
    ]
    for line in first_of(lines, _MOST_LINES, "finding"):
        console.data(line)


def _lines(one: dict[str, Any]) -> Iterator[str]:
    """Yield the evidence, and below it what to do."""
    part = "" if one["part"] in one["text"] else one["part"]
    place = " ".join(word for word in (one["host"] or one["source"], part) if word)
    yield f"{one['severity']}: {f'{place}: ' if place else ''}{one['text']}"
    if one["remedy"]:
        yield f"  to do: {one['remedy']}"


def _job(log: NcclLog) -> dict[str, Any]:
    """Return the log as plain values; keys that are numbers become strings, as JSON requires."""
    names = "versions size communicators channels collnet environment warnings"
    hosts = "name nics interface sockets network without_rdma plugin without_plugin gdr nvlink"
    ranks = "rank host device bus_id network nics complete channels nvls_channels p2p_channels graph_channels"
    paths = "source target transport channels nics receiving_nics gdr receiving_gdr"
    choices = "collective least_bytes most_bytes algorithm protocol channels"
    return {
        **figures(log, names),
        "hosts": [
            {**figures(host, hosts), "nvls": {str(gpu): on for gpu, on in host.nvls.items()}}
            for host in log.hosts
        ],
        "ranks": [figures(rank, ranks) for rank in log.ranks],
        "transports": log.transports(),
        "paths": [figures(path, paths) for path in log.paths],
        "rings": {str(channel): list(ring) for channel, ring in log.rings.items()},
        "trees": {
            str(channel): {str(rank): parent for rank, parent in tree.items()}
            for channel, tree in log.trees.items()
        },
        "choices": [figures(choice, choices) for choice in log.choices],
    }


def _job_lines(job: dict[str, Any]) -> Iterator[str]:
    hosts = [host["name"] for host in job["hosts"] if host["name"]]
    versions = some(list(job["versions"]), _MOST_NAMED) or "NCCL, version unknown"
    where = f" on {plural(len(hosts), 'host')}: {some(hosts, _MOST_NAMED)}" if hosts else ""
    in_log = len(job["ranks"])
    left = f", {in_log} of them in the log" if in_log < job["size"] else ""
    ranks = plural(job["size"], "rank") if job["size"] else "the log names no rank"
    yield f"{versions}: {ranks}{left}{where}"
    if job["communicators"] > 1:
        yield f"{plural(job['communicators'], 'communicator')}, of which the largest is described"
    yield from _path_lines(job)
    yield from _host_lines(job)
    yield from _channel_lines(job)
    if job["environment"]:
        yield "environment: " + some(
            [f"{name}={value}" for name, values in job["environment"].items() for value in values],
            4 * _MOST_NAMED,
        )


def _path_lines(job: dict[str, Any]) -> Iterator[str]:
    counts: dict[str, int] = {}
    for path in job["paths"]:
        ends = {path["gdr"], path["receiving_gdr"]} - {None}
        rdma = {(True,): "with", (False,): "without", (False, True): "with, on one end,"}.get(
            tuple(sorted(ends)), ""
        )
        name = path["transport"]
        if rdma and name != "NET/Socket":
            name += f" {rdma} GPU Direct RDMA"
        counts[name] = counts.get(name, 0) + 1
    for name, count in counts.items():
        yield f"{name}: {plural(count, 'directed pair')} of ranks"
    if job["collnet"]:
        yield f"CollNet: {some(job['collnet'], _MOST_NAMED)}"


def _host_lines(job: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each group of hosts that have the same NICs, network and NVLink SHARP."""
    alike: dict[str, list[str]] = {}
    for host in job["hosts"]:
        nics = [f"{nic['name']}:{nic['port']}/{nic['link_layer']}" for nic in host["nics"]]
        parts = [f"NICs {some(nics, 2 * _MOST_NAMED)}"] if nics else []
        parts += [f"sockets {some(host['sockets'], _MOST_NAMED)}"] if host["sockets"] and not nics else []
        parts += [f"set-up over {host['interface']}"] if host["interface"] else []
        parts += [f"network {host['network']}"] if host["network"] else []
        on = sum(host["nvls"].values())
        parts += [f"NVLink SHARP on {on} of {plural(len(host['nvls']), 'GPU')}"] if host["nvls"] else []
        if parts:
            alike.setdefault(", ".join(parts), []).append(host["name"] or "all ranks")
    for what, names in alike.items():
        yield f"{some(names, _MOST_NAMED)}: {what}"


def _channel_lines(job: dict[str, Any]) -> Iterator[str]:
    if job["channels"]:
        trees = f", {plural(len(job['trees']), 'tree')}" if job["trees"] else ""
        yield f"{plural(job['channels'], 'channel')}{trees}"
    distinct: dict[str, list[str]] = {}
    for channel, ring in job["rings"].items():
        shown = some([*map(str, ring)], _MOST_RANKS, " ")
        distinct.setdefault(shown, []).append(channel)
    for shown, channels in list(distinct.items())[:_MOST_NAMED]:
        yield f"ring on channel {some(channels, 2 * _MOST_NAMED)}: {shown}"
    for one in job["choices"]:
        sizes = about(one["least_bytes"])
        if one["most_bytes"] > one["least_bytes"]:
            sizes += f" to {about(one['most_bytes'])}"
        wide = f", {plural(one['channels'], 'channel')}" if one["channels"] else ""
        kind = one["collective"] or "collectives"
        yield f"{kind} of {sizes} bytes: {one['algorithm']} {one['protocol']}{wide}"
