"""A job as NCCL's log describes it: hosts, ranks, transports, rings and trees, and what is wrong with them.

Hosts of a cluster are meant to be alike, so a host or rank is judged by what most of the others do, and by
the topology of the machine where it is known.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from exec.benchmark.foreign.evidence import Evidence, Severity, worst_first
from probes.base import normal_bus_id, plural, some
from probes.paths import Paths, host_named
from probes.topology import Host, Nic, Topology

__all__ = [
    "NcclChoice",
    "NcclHost",
    "NcclLog",
    "NcclNic",
    "NcclPath",
    "NcclRank",
    "NcclWarning",
]

_TOOL = "NCCL"
_MOST_NAMED = 8
_SOCKET = "NET/Socket"
# Interfaces that other hosts cannot reach: the loopback, and interfaces of containers and virtual machines.
_LOCAL = re.compile(r"lo$|docker|virbr|veth|br-[0-9a-f]{12}|cni|flannel")
# Warnings with a known cause: pattern, kind of the evidence, severity, meaning. The first pattern that
# matches counts.
_KNOWN: tuple[tuple[re.Pattern[str], str, Severity, str], ...] = (
    (
        re.compile(r"Got completion.*(?:status=12\b|\(12\))"),
        "ib_timeout",
        "fault",
        "a NIC got no answer although it sent again and again: packets are lost, or the path is broken",
    ),
    (re.compile(r"Got completion.*status="), "ib_error", "fault", "a transfer over RDMA failed"),
    (re.compile(r"async fatal event"), "ib_port", "fault", "a NIC reported that a port or queue failed"),
    (
        re.compile(r"Call to ibv_\w+ failed"),
        "ib_setup",
        "fault",
        "a connection over RDMA could not be set up",
    ),
    (
        re.compile(r"between NVLINK connected GPUs"),
        "p2p_disabled",
        "fault",
        "the driver forbids direct access between GPUs that NVLink joins, which points at the hardware",
    ),
    (re.compile(r"No transport found"), "no_transport", "fault", "no transport joins two ranks"),
    (re.compile(r"(?i)cuda failure|cuda error"), "cuda", "fault", "a call of CUDA failed"),
    (
        re.compile(r"Mismatched NCCL version"),
        "versions_differ",
        "fault",
        "the ranks run different versions of NCCL",
    ),
    (
        re.compile(r"mixed local (?:Net|CollNet) device counts"),
        "nics_differ",
        "fault",
        "ranks see different numbers of NICs",
    ),
    (
        re.compile(r"closed by remote peer|Connection refused|No route to host|[Tt]imed? ?out"),
        "peer_lost",
        "fault",
        "a connection to another rank broke or was refused",
    ),
    (
        re.compile(r"no socket interface found|no interface found|no usable listening interface"),
        "no_interface",
        "fault",
        "no network interface can be used",
    ),
)


@dataclass(frozen=True)
class NcclNic:
    """A port of a NIC that NCCL uses; ``link_layer`` is "IB", "RoCE" or a provider such as "efa"."""

    name: str
    port: int
    link_layer: str


@dataclass(frozen=True)
class NcclHost:
    """One host.

    ``nics`` are the ports that most of its processes name. ``interface`` is the interface over which
    connections are set up, and ``sockets`` are the interfaces that may carry data. ``gdr`` maps a NIC
    ("mlx5_0"), or a GPU and a NIC, to the reason why GPU Direct RDMA is off, "" if it is on. ``nvls`` maps
    GPUs to whether they have NVLink SHARP. ``nvlink`` tells whether NCCL found NVLinks between GPUs, None if
    the log does not say.
    """

    name: str
    nics: tuple[NcclNic, ...] = ()
    interface: str = ""
    sockets: tuple[str, ...] = ()
    network: str = ""
    without_rdma: bool = False
    plugin: str = ""
    without_plugin: str = ""
    gdr: Mapping[str, str] = field(default_factory=dict)
    nvls: Mapping[int, bool] = field(default_factory=dict)
    nvlink: bool | None = None
    without_p2p: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class NcclRank:
    """One rank of the largest communicator.

    ``nics`` names the ports that its process found ("mlx5_0:1"), () if its log does not say. ``complete``
    tells whether its initialization ended. ``graph_channels`` is the number of channels that its search for
    rings found; NCCL uses the least number of all ranks.
    """

    rank: int
    host: str
    device: int
    bus_id: str
    network: str = ""
    nics: tuple[str, ...] = ()
    complete: bool = False
    channels: int | None = None
    nvls_channels: int | None = None
    p2p_channels: int | None = None
    graph_channels: int | None = None


@dataclass(frozen=True)
class NcclPath:
    """The connection from one rank to another: "P2P/CUMEM", "SHM", "NET/IB"…, and the channels on it.

    ``nics`` has the numbers of the sending NICs, ``receiving_nics`` the numbers of the receiving NICs.
    ``gdr`` and ``receiving_gdr`` tell whether the NICs of the sender and of the receiver access the GPU's
    memory directly; None inside a host, or if the log of that rank is missing.
    """

    source: int
    target: int
    transport: str
    channels: tuple[int, ...]
    nics: tuple[int, ...] = ()
    receiving_nics: tuple[int, ...] = ()
    gdr: bool | None = None
    receiving_gdr: bool | None = None


@dataclass(frozen=True)
class NcclChoice:
    """The algorithm and protocol that NCCL took for sizes from ``least_bytes`` to ``most_bytes``."""

    collective: str
    least_bytes: int
    most_bytes: int
    algorithm: str
    protocol: str
    channels: int | None = None


@dataclass(frozen=True)
class NcclWarning:
    """A warning, its count and its hosts; warnings that differ only in numbers are the same."""

    text: str
    count: int
    hosts: tuple[str, ...]


@dataclass(frozen=True)
class NcclLog:
    """The facts in the log of one job; ranks, paths, rings and trees are those of the largest communicator.

    ``versions`` maps each version to the hosts that run it, ``environment`` each variable to its values and
    their hosts. ``rings`` maps channels to ranks in order, ``trees`` maps them to the parent of each rank (-1
    for the root). ``collnet`` names the networks that reduce data themselves (SHARP).
    """

    versions: Mapping[str, tuple[str, ...]]
    size: int
    communicators: int
    ranks: tuple[NcclRank, ...]
    hosts: tuple[NcclHost, ...]
    paths: tuple[NcclPath, ...]
    channels: int
    rings: Mapping[int, tuple[int, ...]]
    trees: Mapping[int, Mapping[int, int]]
    collnet: tuple[str, ...]
    choices: tuple[NcclChoice, ...]
    environment: Mapping[str, Mapping[str, tuple[str, ...]]]
    warnings: tuple[NcclWarning, ...]

    def findings(self, topology: Topology | None = None) -> list[Evidence]:
        """Return what is wrong or unusual; ``topology`` describes the job's hosts."""
        return worst_first(
            [
                *_warnings(self),
                *_versions(self),
                *_sockets(self, topology),
                *_interfaces(self),
                *_nics(self),
                *_unused_nics(self, topology),
                *_host_memory(self, topology),
                *_gdr(self),
                *_nvls(self, topology),
                *_channels(self),
                *_plugins(self),
                *_environment(self),
                *_unfinished(self),
            ]
        )

    @cached_property
    def by_rank(self) -> Mapping[int, NcclRank]:
        """The ranks that the log names, by number."""
        return {one.rank: one for one in self.ranks}

    def host_of(self, rank: int) -> str:
        """Return the host of a rank; "" if the log does not name it."""
        return self.by_rank[rank].host if rank in self.by_rank else ""

    def transports(self) -> dict[str, int]:
        """Return the number of directed pairs of ranks by transport, most first."""
        return dict(Counter(path.transport for path in self.paths).most_common())


def _fault(host: str, part: str, kind: str, text: str, *numbers: float) -> Evidence:
    return _found("fault", host, part, kind, text, *numbers)


def _remark(host: str, part: str, kind: str, text: str, *numbers: float) -> Evidence:
    return _found("remark", host, part, kind, text, *numbers)


def _found(severity: Severity, host: str, part: str, kind: str, text: str, *numbers: float) -> Evidence:
    value, normal = numbers if numbers else (None, None)
    return Evidence(_TOOL, host, part, kind, severity, text, value, "", normal)


def _warnings(log: NcclLog) -> Iterator[Evidence]:
    for one in log.warnings:
        known = next((row for row in _KNOWN if row[0].search(one.text)), None)
        times = f" ({one.count} times)" if one.count > 1 else ""
        hosts = one.hosts or ("",)
        for host in hosts:
            if known is None:
                yield _remark(host, "", "warning", f"NCCL warns: {one.text}{times}")
            else:
                yield _found(known[2], host, "", known[1], f"{known[3]}: {one.text}{times}")


def _versions(log: NcclLog) -> Iterator[Evidence]:
    if len(log.versions) < 2:
        return
    for version, hosts in log.versions.items():
        others = some([one for one in log.versions if one != version], _MOST_NAMED)
        text = f"{version} runs on {some(hosts, _MOST_NAMED) or 'some rank'}, {others} elsewhere"
        for host in hosts or ("",):
            yield _fault(host, "", "versions_differ", text)


def _sockets(log: NcclLog, topology: Topology | None) -> Iterator[Evidence]:
    """Yield hosts that use sockets, and hosts without RDMA devices where other hosts have some."""
    # Each end of a path logs its own line. An end without numbers of NICs has no line in the log.
    pairs = Counter(
        log.host_of(rank)
        for path in log.paths
        if path.transport == _SOCKET
        for rank, numbers in ((path.source, path.nics), (path.target, path.receiving_nics))
        if numbers
    )
    with_nics = [host.name for host in log.hosts if host.nics]
    several = len({rank.host for rank in log.ranks}) > 1
    for host in log.hosts:
        uses = pairs[host.name] or (several and host.network == "Socket")
        reason = _reason(log, host.name, ("NCCL_NET", "NCCL_IB_DISABLE", "NCCL_NET_PLUGIN", "NCCL_IB_HCA"))
        over = f" ({some(host.sockets, _MOST_NAMED)})" if host.sockets else ""
        has = _rdma_nics(topology, host.name)
        if uses and host.nics:
            names = some([nic.name for nic in host.nics], _MOST_NAMED)
            text = f"traffic between hosts goes over sockets{over} although NCCL found {names}{reason}"
            yield _fault(host.name, "", "socket_fallback", text)
        elif uses and has:
            names = some(list(has), _MOST_NAMED)
            text = f"traffic between hosts goes over sockets{over} although the topology has {names}{reason}"
            yield _fault(host.name, "", "socket_fallback", text)
        elif uses:
            found = "NCCL found no RDMA device" if host.without_rdma else "NCCL names no RDMA device"
            text = f"traffic between hosts goes over sockets{over}: {found}{reason}"
            yield _found("fault" if with_nics else "remark", host.name, "", "socket_fallback", text)
        elif host.without_rdma and with_nics and not host.nics:
            text = f"NCCL found no RDMA device, on {some(with_nics, _MOST_NAMED)} it did{reason}"
            yield _fault(host.name, "", "nic_missing", text)


def _interfaces(log: NcclLog) -> Iterator[Evidence]:
    """Yield hosts that use interfaces which others cannot reach, if there are several hosts."""
    if len({rank.host for rank in log.ranks}) < 2:
        return
    for host in log.hosts:
        sockets = host.sockets if host.network == "Socket" else ()
        local = [name for name in dict.fromkeys((host.interface, *sockets)) if _LOCAL.match(name)]
        if local:
            shown = some(local, _MOST_NAMED)
            text = f"NCCL uses {shown}, which other hosts cannot reach; NCCL_SOCKET_IFNAME selects others"
            yield _remark(host.name, shown, "local_interface", text)


def _reason(log: NcclLog, host: str, names: Iterable[str]) -> str:
    """Return which of these variables are set on a host, as the end of a sentence."""
    settings = [
        f"{name}={value}"
        for name in names
        for value, hosts in log.environment.get(name, {}).items()
        if not hosts or host in hosts
    ]
    return f"; {' '.join(settings)} is set" if settings else ""


def _rdma_nics(topology: Topology | None, host: str) -> dict[str, Nic]:
    """Return a host's RDMA NICs in the topology, by NCCL's names, without those whose link is down.

    A topology that was read from NCCL's own file has RDMA devices as NICs. That file counts ports of RDMA
    devices from 1 and ports of sockets from 0, so a NIC with port 0 does no RDMA.
    """
    machine = host_named(topology, host) if topology else None
    return {
        nic.rdma_device or nic.name: nic
        for nic in (machine.nics if machine else ())
        if nic.physical is not False
        and (nic.rdma_device or (nic.index is not None and nic.port))
        and nic.state.lower() in ("", "up", "active")
    }


def _nics(log: NcclLog) -> Iterator[Evidence]:
    """Yield ranks whose NICs differ from most ranks of the host, and hosts unlike most others."""
    names = {
        host.name: tuple(f"{nic.name}:{nic.port}" for nic in host.nics) for host in log.hosts if host.nics
    }
    for rank in log.ranks:
        own, of_host = rank.nics, names.get(rank.host, ())
        if own and own != of_host:
            most = some(of_host, _MOST_NAMED)
            text = f"rank {rank.rank} finds {some(own, _MOST_NAMED)}, most ranks of its host {most}"
            yield _fault(rank.host, f"rank {rank.rank}", "nics_differ", text, len(own), len(of_host))
    if len(names) < 2:
        return
    counts = Counter(names.values())
    # If two sets of NICs are equally frequent, the larger one counts as normal.
    usual = max(counts, key=lambda nics: (counts[nics], len(nics)))
    for name, own in names.items():
        if own == usual:
            continue
        missing = [nic for nic in usual if nic not in own]
        more = [nic for nic in own if nic not in usual]
        text = f"NCCL uses {plural(len(own), 'NIC')}, {len(usual)} on {plural(counts[usual], 'host')}"
        text += f", without {some(missing, _MOST_NAMED)}" if missing else ""
        text += f", with {some(more, _MOST_NAMED)} instead" if more and missing else ""
        severity: Severity = "fault" if len(own) < len(usual) else "remark"
        yield _found(severity, name, "NICs", "nics_differ", text, len(own), len(usual))


def _unused_nics(log: NcclLog, topology: Topology | None) -> Iterator[Evidence]:
    """Yield the topology's RDMA NICs that NCCL leaves out, and NCCL's NICs that the topology lacks.

    A NIC that is slower than all NICs that NCCL uses is not counted as left out.
    """
    for host in log.hosts:
        used = {nic.name for nic in host.nics}
        known = _rdma_nics(topology, host.name)
        speeds = [nic.speed_mbit for name, nic in known.items() if name in used and nic.speed_mbit]
        reason = _reason(log, host.name, ("NCCL_IB_HCA",))
        for name, nic in known.items():
            if used and name not in used and (not speeds or (nic.speed_mbit or 0) >= min(speeds)):
                speed = f" ({nic.speed_mbit / 1000:g} Gbit/s)" if nic.speed_mbit else ""
                text = f"the topology has {name}{speed}, which NCCL does not use{reason}"
                yield _remark(host.name, name, "nic_unused", text)
        strange = sorted(used - known.keys())
        if known and strange and all(nic.link_layer in ("IB", "RoCE") for nic in host.nics):
            text = f"NCCL uses {some(strange, _MOST_NAMED)}, which the topology does not have"
            yield _remark(host.name, "NICs", "nic_unknown", text)


def _host_memory(log: NcclLog, topology: Topology | None) -> Iterator[Evidence]:
    """Yield the hosts whose GPUs exchange data through host memory."""
    through: dict[str, list[tuple[int, int]]] = defaultdict(list)
    direct: Counter[str] = Counter()
    for path in log.paths:
        if path.transport == "SHM":
            through[log.host_of(path.source)].append((path.source, path.target))
        direct[log.host_of(path.source)] += path.transport.startswith("P2P")
    for host in (host for host in log.hosts if host.name in through):
        pairs = through[host.name]
        joined = _on_nvlink(log, pairs, host_named(topology, host.name) if topology else None)
        reported = joined or pairs
        shown = some([f"{a} -> {b}" for a, b in reported], _MOST_NAMED) + _why_not_direct(log, host)
        subject = f"{plural(len(reported), 'pair')} of ranks exchange data through host memory (SHM)"
        if joined or (host.nvlink and topology is None):
            although = "NVLink joins their GPUs" if joined else "the host has NVLinks"
            text = f"{subject} although {although}: {shown}"
            yield _fault(host.name, "", "host_memory", text)
        else:
            others = f", {plural(direct[host.name], 'pair')} directly" if direct[host.name] else ""
            yield _remark(host.name, "", "host_memory", f"{subject}{others}: {shown}")


def _why_not_direct(log: NcclLog, host: NcclHost) -> str:
    reason = _reason(log, host.name, ("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL"))
    if host.without_p2p:
        pairs = some([f"GPU {a} and {b}" for a, b in host.without_p2p], _MOST_NAMED)
        reason += f"; NCCL says that P2P is disabled between {pairs}"
    return reason


def _on_nvlink(log: NcclLog, pairs: Iterable[tuple[int, int]], machine: Host | None) -> list[tuple[int, int]]:
    """Return the pairs of ranks whose GPUs are connected by NVLink in the topology."""
    if machine is None:
        return []
    gpus = {gpu.bus_id: gpu for gpu in machine.gpus}
    of_rank = {rank: gpus.get(_bus_id(one.bus_id)) for rank, one in log.by_rank.items()}
    paths = Paths(machine)
    return [
        (a, b)
        for a, b in pairs
        if (one := of_rank.get(a)) is not None
        and (other := of_rank.get(b)) is not None
        and paths.between(one, other) == "NVL"
    ]


def _bus_id(text: str) -> str:
    """Return a bus id of NCCL's log as Linux writes it: 1b000 is 0000:1b:00.0."""
    number = int(text, 16)
    domain, bus, device, function = number >> 20, number >> 12 & 0xFF, number >> 4 & 0xFF, number & 0xF
    return normal_bus_id(f"{domain & 0xFFFFFFFF:x}:{bus:x}:{device:x}.{function & 7}")


def _gdr(log: NcclLog) -> Iterator[Evidence]:
    """Yield the hosts whose NICs do not reach the memory of GPUs directly."""
    over_net: Counter[str] = Counter()
    without: Counter[str] = Counter()
    ends = (
        (log.host_of(rank), direct)
        for path in log.paths
        if path.transport != _SOCKET
        for rank, direct in ((path.source, path.gdr), (path.target, path.receiving_gdr))
        if direct is not None
    )
    for name, direct in ends:
        over_net[name] += 1
        without[name] += not direct
    sound = [host.name for host in log.hosts if over_net[host.name] and not without[host.name]]
    for host in log.hosts:
        off = {name: reason for name, reason in host.gdr.items() if reason}
        all_off = off and len(off) == len(host.gdr) and not over_net[host.name]
        if not (without[host.name] or all_off):
            continue
        reasons = [f"{name} ({reason})" if reason != "disabled" else name for name, reason in off.items()]
        why = f": off for {some(reasons, _MOST_NAMED)}" if off else ""
        why += _gdr_cause(off.values()) + _reason(log, host.name, ("NCCL_NET_GDR_LEVEL", "NCCL_NET_GDR_READ"))
        most = over_net[host.name]
        share = f"{without[host.name]} of {plural(most, 'connection')} to other hosts" if most else "all NICs"
        beside = f", on {some(sound, _MOST_NAMED)} it is on" if sound else ""
        text = f"GPU Direct RDMA is off for {share}{why}{beside}"
        yield _found("fault" if sound else "remark", host.name, "NICs", "gdr_off", text)


def _gdr_cause(reasons: Iterable[str]) -> str:
    distinct = {*reasons}
    if any("distance" in one for one in distinct):
        return "; a distance means that GPU and NIC do not share a PCIe switch"
    if distinct & {"disabled", "no module"}:
        return "; neither the module nvidia_peermem nor DMA-BUF serves the NIC"
    return ""


def _nvls(log: NcclLog, topology: Topology | None) -> Iterator[Evidence]:
    """Yield hosts with GPUs without NVLink SHARP, if others have it or the topology supports it."""
    has = [host.name for host in log.hosts if any(host.nvls.values())]
    for host in log.hosts:
        off = [gpu for gpu, on in host.nvls.items() if not on]
        if not off:
            continue
        shown = some([f"GPU {gpu}" for gpu in off], _MOST_NAMED)
        machine = host_named(topology, host.name) if topology else None
        if has:
            where = "other GPUs of the host" if host.name in has else some(has, _MOST_NAMED)
            yield _fault(host.name, shown, "nvls_off", f"NVLink SHARP is off for {shown}, on for {where}")
        elif machine is not None and _has_sharp(machine):
            text = f"NVLink SHARP is off for {shown} although the topology has NVSwitches that offer it"
            yield _remark(host.name, shown, "nvls_off", text + _reason(log, host.name, ("NCCL_NVLS_ENABLE",)))


def _has_sharp(machine: Host) -> bool:
    """Return whether a host has NVSwitches and a GPU of Hopper (sm_90) or later."""
    new = any(re.fullmatch(r"sm_(?:9[0-9]|1[0-9]{2})[a-z]?", gpu.arch) for gpu in machine.gpus)
    return new and any(link.target_kind == "switch" for link in machine.fabric)


def _channels(log: NcclLog) -> Iterator[Evidence]:
    """Yield the ranks with fewer channels than most; NCCL uses the least number for all ranks."""
    for name, what in (("graph_channels", "its search found"), ("channels", "it uses")):
        counts = {one.rank: value for one in log.ranks if (value := getattr(one, name)) is not None}
        if len({*counts.values()}) < 2:
            continue
        often = Counter(counts.values())
        usual = max(often, key=lambda count: (often[count], count))
        for rank, count in counts.items():
            if count < usual:
                text = f"rank {rank} has {plural(count, 'channel')} ({what}), most ranks have {usual}"
                text += ", and NCCL takes the least of all ranks" if name == "graph_channels" else ""
                yield _fault(log.host_of(rank), f"rank {rank}", "channels_differ", text, count, usual)


def _plugins(log: NcclLog) -> Iterator[Evidence]:
    loaded = {host.plugin for host in log.hosts if host.plugin and not host.without_plugin}
    for host in log.hosts:
        wanted = _reason(log, host.name, ("NCCL_NET_PLUGIN",))
        if host.without_plugin and (loaded or wanted):
            beside = f"; other hosts loaded {some(sorted(loaded), _MOST_NAMED)}" if loaded else ""
            text = f"the network plugin was not found ({host.without_plugin}){beside}{wanted}"
            yield _fault(host.name, "plugin", "plugin_missing", text)


def _environment(log: NcclLog) -> Iterator[Evidence]:
    for name, values in log.environment.items():
        named = {value: hosts for value, hosts in values.items() if hosts}
        if len(named) < 2:
            continue
        usual = max(named, key=lambda value: len(named[value]))
        for value, hosts in named.items():
            for host in hosts:
                if value != usual:
                    text = f"{name} is {value}, {usual} on {plural(len(named[usual]), 'host')}"
                    yield _remark(host, name, "environment_differs", text)


def _unfinished(log: NcclLog) -> Iterator[Evidence]:
    left = [one for one in log.ranks if not one.complete]
    if left and len(left) < len(log.ranks):
        for one in left:
            text = (
                f"rank {one.rank} did not finish its initialization, {len(log.ranks) - len(left)} others did"
            )
            yield _remark(one.host, f"rank {one.rank}", "unfinished", text)
    elif left:
        text = f"none of {plural(len(left), 'rank')} in the log finished its initialization"
        yield _remark("", "", "unfinished", text)
