"""Logs of NCCL and RCCL (NCCL_DEBUG=INFO or WARN), of one rank or of many, mixed or concatenated.

Each line names host, process, thread and GPU. A thread that initializes a communicator logs the
communicator's name before its other lines (NCCL 2.18 and later) or after them (earlier versions). The
thread's lines on channels, rings and trees belong to that communicator. The formats are those of
https://github.com/NVIDIA/nccl (src/debug.cc, src/init.cc, src/graph, src/transport) from 2.4 to 2.28, and of
https://github.com/aws/aws-ofi-nccl.
"""

from __future__ import annotations

import io
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from exec.benchmark.foreign.evidence import text_of
from exec.benchmark.foreign.nccl_log import (
    NcclChoice,
    NcclHost,
    NcclLog,
    NcclNic,
    NcclPath,
    NcclRank,
    NcclWarning,
)
from probes.base import DataError

__all__ = ["is_nccl_debug", "parse_nccl_debug"]

_INFO, _WARN = b"NCCL INFO ", b"NCCL WARN "
# Lines, and their heads (the part before "NCCL INFO"), are cut to these bytes: no pattern below matches more.
# _MOST_RANKS is more than the ranks of any communicator.
_MOST_LINE = 8192
_MOST_HEAD = 640
_MOST_RANKS = 1 << 20
# Most paths of a communicator (also most lines kept until their communicator is known), most distinct
# warnings, and most communicators, variables and choices. These limits keep a log of random lines from
# filling the memory.
_MOST_PATHS, _MOST_WARNINGS, _MOST_KINDS = 1 << 21, 10_000, 100_000
_HEAD = re.compile(
    r"(?:^|[\s\]>|:])(?P<host>[^\s:\[\]<>|]{1,253}):(?P<pid>[0-9]{1,10}):(?P<thread>[0-9]{1,10}) "
    r"\[(?P<device>-?[0-9]{1,4})\] (?:[^\s\[\]]{1,200}:[0-9]{1,7} (?:\([^()]{1,80}\) )?)?$"
)
_VERSION = re.compile(r"(?:^|[\s\]:])([NR]CCL version(?: :)? [0-9]\S{0,60})")
_COMMUNICATOR = re.compile(
    r"comm 0x[0-9a-f]{1,16} rank (?P<rank>[0-9]{1,7}) nranks (?P<size>[0-9]{1,7})"
    r" cudaDev (?P<device>[0-9]{1,4})(?: nvmlDev [0-9]{1,4})? busId (?P<bus>[0-9a-f]{1,10})"
    r"(?: commId (?P<id>0x[0-9a-f]{1,16}))?"
    r"(?: parent .{0,60}?\bcolor (?P<color>-?[0-9]{1,10}) .{0,40}?)? - Init (?P<state>START|COMPLETE)"
)
_RING = re.compile(r"Channel ([0-9]{1,4})/([0-9]{1,4}) :((?: +[0-9]{1,7})+)(?: *\.\.\.)?\s*")
_PATH = re.compile(
    r"(?:Channel|Ring) (?P<channel>[0-9]{1,4})(?:/[0-9]{1,4})? : "
    r"(?P<source>[0-9]{1,7})(?:\[[0-9a-f]{1,10}\])? -> (?P<target>[0-9]{1,7})(?:\[[0-9a-f]{1,10}\])?"
    r"(?: \[(?P<end>send|receive)\])? via (?P<via>\S.*)"
)
_COLLNET = re.compile(
    r"CollNet [0-9]{1,4}/[0-9]{1,4} : [0-9]{1,7} \[(?:send|receive)\] via COLLNET/([^/]{1,60})/"
)
_NET = re.compile(
    r"NET/(?P<net>[^/]{1,60})/(?P<nic>[0-9]{1,6})(?:\((?P<proxy>[0-9]{1,7})\))?(?P<rest>(?:/.*)?)"
)
_TREE = re.compile(r"\[([0-9]{1,4})\] (-?[0-9/-]{1,40})->(-?[0-9]{1,7})->(-?[0-9]{1,7})")
_CHANNELS = re.compile(
    r"([0-9]{1,4}) coll channels(?:, [0-9]{1,4} collnet channels)?(?:, ([0-9]{1,4}) nvls channels)?"
    r", ([0-9]{1,4}) p2p channels"
)
_PATTERN = re.compile(
    r"Pattern (?P<pattern>[0-9]{1,2}), crossNic [0-9]{1,2}, nChannels (?P<channels>[0-9]{1,4}), "
    r".{0,80}?type (?P<inside>[A-Z0-9]{2,4})/(?P<outside>[A-Z0-9]{2,4})"
)
# The number by which the log names the pattern of rings: NCCL_TOPO_PATTERN_RING.
_RING_PATTERN = "4"
_ENVIRONMENT = re.compile(r"(NCCL_[A-Z0-9_]{1,60}) set (?:by environment )?to (.{0,200}?)\.?")
_NIC = re.compile(r"([A-Za-z][\w.-]{0,40}):([0-9]{1,3})(?::[0-9]{0,6}){0,2}/([A-Za-z]{2,20})")
_INTERFACE = re.compile(r"([A-Za-z][\w.-]{0,40}):")
_SOCKET = re.compile(r"\[[0-9]{1,4}\]([A-Za-z][\w.-]{0,40}):")
_OOB = re.compile(r"; OOB ([A-Za-z][\w.-]{0,40}):")
_OF_HCA = re.compile(
    r"GPU Direct RDMA (Enabled|Disabled) for HCA [0-9]{1,4} '([^']{1,60})'(?: \((.{1,80})\))?"
)
_OF_PAIR = re.compile(
    r"GPU Direct RDMA (Enabled|Disabled) for GPU ([0-9a-f]{1,10}) / HCA ([0-9]{1,4})(?: \((.{1,80}?)\))?"
)
_NVLS = re.compile(r"NVLS multicast support is (not )?available on dev ([0-9]{1,4})")
_PROVIDER = re.compile(r"NET/OFI Selected [Pp]rovider is (\w{1,40}).*?\(found ([0-9]{1,4}) nics\)")
_NO_PLUGIN = re.compile(r"(?:NET/Plugin ?: )?(?:Could not find:|No plugin found) .{0,200}")
_PLUGIN = re.compile(
    r"NET/Plugin: (?:Loaded net plugin|Using) (.{1,60}?)(?: \(v[0-9]+\))?$"
    r"|P2P plugin (\S{1,60})|Using network (.{1,60})"
)
_CHOICE = re.compile(
    r"(?:(?P<kind>\w{1,40}): )?(?P<bytes>[0-9]{1,18}) Bytes -> "
    r"Algo (?P<algorithm>\w{1,40}) proto (?P<protocol>\w{1,20})"
    r"(?: .{0,40}?\{(?P<low>[0-9]{1,4})\.\.(?P<high>[0-9]{1,4})\})?"
)
# NCCL before 2.26 logs algorithms and protocols as numbers (NCCL_ALGO_*, NCCL_PROTO_* in
# src/include/device.h), which are the positions of these names.
_ALGORITHMS = ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")
_PROTOCOLS = ("LL", "LL128", "Simple")
_NO_P2P = re.compile(
    r"P2P is disabled between (?:connected|NVLINK connected) GPUs ([0-9]{1,4}) and ([0-9]{1,4})"
    r"|Could not enable P2P between dev ([0-9]{1,4}).{0,20}? and dev ([0-9]{1,4})"
)
_VARIES = re.compile(r"0x[0-9a-f]+|[0-9]+")

_JSON = re.compile(rb'\s*(?:\{\s*"|\[\s*[{"])')

_Thread = tuple[str, str, str]


def is_nccl_debug(content: bytes) -> bool:
    """Return whether ``content`` is text with lines of NCCL's log."""
    return (_INFO in content or _WARN in content) and _JSON.match(content) is None


@dataclass
class _Member:
    rank: int
    host: str
    pid: str
    device: int
    bus_id: str
    complete: bool = False
    channels: int | None = None
    nvls_channels: int | None = None
    p2p_channels: int | None = None
    graph_channels: int | None = None


@dataclass
class _PathLines:
    """The facts that the lines on one path state; ``gdr`` counts them by (end, uses GPU Direct RDMA)."""

    channels: set[int] = field(default_factory=set)
    nics: set[int] = field(default_factory=set)
    receiving_nics: set[int] = field(default_factory=set)
    gdr: Counter[tuple[str, bool]] = field(default_factory=Counter)


@dataclass
class _Communicator:
    """One communicator; ``trees`` maps each channel to the parent of each rank."""

    size: int
    members: dict[int, _Member] = field(default_factory=dict)
    paths: dict[tuple[int, int, str], _PathLines] = field(default_factory=lambda: defaultdict(_PathLines))
    rings: dict[int, tuple[int, ...]] = field(default_factory=dict)
    trees: dict[int, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    channels: int = 0


@dataclass
class _ProcessLines:
    """The facts that one process states about its network."""

    nics: tuple[NcclNic, ...] = ()
    network: str = ""
    plugin: str = ""


@dataclass
class _HostLines:
    """The facts that the processes of one host log.

    ``gdr`` maps a NIC, or a GPU and a NIC, to the reason why GPU Direct RDMA is off, "" if it is on.
    """

    processes: dict[str, _ProcessLines] = field(default_factory=lambda: defaultdict(_ProcessLines))
    interface: str = ""
    sockets: tuple[str, ...] = ()
    without_rdma: bool = False
    without_plugin: str = ""
    gdr: dict[str, str] = field(default_factory=dict)
    nvls: dict[int, bool] = field(default_factory=dict)
    inside: set[str] = field(default_factory=set)
    without_p2p: set[tuple[int, int]] = field(default_factory=set)


@dataclass
class _WarningLines:
    """Warnings that differ in numbers alone."""

    text: str
    count: int = 0
    hosts: set[str] = field(default_factory=set)


def parse_nccl_debug(files: Mapping[str, bytes]) -> NcclLog:
    """Return the facts in the log of one job; ``files`` maps names to contents, in any order.

    Raises DataError if no file has a line of NCCL's log, if a communicator has more than 2^20 ranks, or if a
    rank's number is not below its communicator's size.
    """
    reader = _Reader(next(iter(files), ""))
    for content in files.values():
        for line in io.BytesIO(content):
            if b"CCL" in line:
                reader.read(line[:_MOST_LINE])
    return reader.log()


@dataclass(frozen=True)
class _Origin:
    """The process, thread and GPU that logged a line."""

    host: str
    pid: str
    thread: str
    device: int

    @property
    def key(self) -> _Thread:
        return self.host, self.pid, self.thread

    @property
    def gpu(self) -> tuple[str, str, int]:
        return self.host, self.pid, self.device


_NOWHERE = _Origin("", "", "", 0)


class _Reader:
    """Gathers the lines of a log."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._lines = 0
        self._versions: dict[str, set[str]] = defaultdict(set)
        self._hosts: dict[str, _HostLines] = defaultdict(_HostLines)
        self._communicators: dict[str, _Communicator] = {}
        # (Name of the communicator, rank) that a thread named last, and that any thread of the same process
        # and GPU named last.
        self._of_thread: dict[_Thread, tuple[str, int]] = {}
        self._of_gpu: dict[tuple[str, str, int], tuple[str, int]] = {}
        # Lines of threads that have not named their communicator yet.
        self._early: dict[_Thread, list[tuple[_Origin, str]]] = defaultdict(list)
        self._kept = 0
        self._environment: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        self._warnings: dict[str, _WarningLines] = {}
        self._choices: dict[tuple[str, int], tuple[str, str, int | None]] = {}
        self._collnet: set[str] = set()

    def read(self, line: bytes) -> None:
        """Take one line into account; without NCCL INFO or WARN, only a version is read from it."""
        at = line.find(_INFO)
        warned = at < 0 and (at := line.find(_WARN)) >= 0
        if at < 0:
            if found := _VERSION.search(line.decode(errors="replace")):
                self._versions[found[1]].add("")
            return
        self._lines += 1
        head = line[max(0, at - _MOST_HEAD) : at].decode(errors="replace")
        text = line[at + len(_INFO) :].decode(errors="replace").strip()
        found = _HEAD.search(head)
        origin = (
            _Origin(found["host"], found["pid"], found["thread"], int(found["device"])) if found else _NOWHERE
        )
        if warned:
            self._warn(origin, text)
        else:
            self._info(origin, text)

    def _info(self, origin: _Origin, text: str) -> None:
        if found := _COMMUNICATOR.search(text):
            self._name_communicator(origin, found)
        elif text.startswith(_OF_COMMUNICATOR) or " coll channels" in text:
            self._place(origin, text)
        elif found := _VERSION.match(text):
            self._versions[found[1]].add(origin.host)
        elif " Bytes -> Algo " in text:
            self._choose(text)
        elif found := _COLLNET.match(text):
            self._collnet.add(found[1])
        elif text.startswith("NCCL_") and (found := _ENVIRONMENT.fullmatch(text)):
            if len(self._environment) < _MOST_KINDS:
                self._environment[found[1]][found[2]].add(origin.host)
        else:
            for beginning, take in _TAKEN:
                if text.startswith(beginning):
                    take(self._hosts[origin.host], origin, text)
                    break

    def _warn(self, origin: _Origin, text: str) -> None:
        if found := _NO_P2P.search(text):
            _take_no_p2p(self._hosts[origin.host], origin, found[0])
        key = _VARIES.sub("#", text)[:200]
        if key in self._warnings or len(self._warnings) < _MOST_WARNINGS:
            lines = self._warnings.setdefault(key, _WarningLines(text_of(text)))
            lines.count += 1
            lines.hosts.add(origin.host)

    def _name_communicator(self, origin: _Origin, found: re.Match[str]) -> None:
        rank, size = int(found["rank"]), int(found["size"])
        if not rank < size <= _MOST_RANKS:
            problem = f"expected at most {_MOST_RANKS} ranks, numbered from 0, found rank {rank} of {size}"
            raise DataError(self._source, [problem])
        # Without an identifier, communicators of the same size count as one, unless the colors of their
        # splits differ.
        name = found["id"] or f"{size} ranks {found['color'] or ''}"
        if name not in self._communicators and len(self._communicators) >= _MOST_KINDS:
            return
        own = self._communicators.setdefault(name, _Communicator(size))
        new = _Member(rank, origin.host, origin.pid, int(found["device"]), found["bus"])
        member = own.members.setdefault(rank, new)
        member.complete |= found["state"] == "COMPLETE"
        self._of_thread[origin.key] = self._of_gpu[origin.gpu] = name, rank
        for earlier in self._early.pop(origin.key, ()):
            self._place(*earlier)

    def _place(self, origin: _Origin, text: str) -> None:
        """Add a line to the communicator of its thread, or keep it until the thread names one."""
        known = self._of_thread.get(origin.key) or self._of_gpu.get(origin.gpu)
        if known is not None:
            self._add(self._communicators[known[0]], known[1], origin, text)
        elif self._kept < _MOST_PATHS:
            self._kept += 1
            self._early[origin.key].append((origin, text))

    def _add(self, own: _Communicator, rank: int, origin: _Origin, text: str) -> None:
        member = own.members.get(rank)
        if ring := _RING.fullmatch(text):
            own.channels = max(own.channels, int(ring[2]))
            own.rings.setdefault(int(ring[1]), tuple(map(int, ring[3].split())))
        elif path := _PATH.fullmatch(text):
            _add_path(own, path)
        elif text.startswith("Trees "):
            for tree in _TREE.finditer(text):
                own.trees[int(tree[1])][int(tree[3])] = int(tree[4])
        elif pattern := _PATTERN.match(text):
            self._hosts[origin.host].inside.add(pattern["inside"])
            if pattern["pattern"] == _RING_PATTERN and member is not None:
                # A line on a second graph with more channels may follow; the last line counts.
                member.graph_channels = int(pattern["channels"])
        elif (channels := _CHANNELS.match(text)) and member is not None:
            # Only the line "Init COMPLETE" follows, and it may be torn. So the line matched here counts as
            # the end of the initialization as well.
            member.complete, member.channels = True, int(channels[1])
            member.nvls_channels = int(channels[2]) if channels[2] else None
            member.p2p_channels = int(channels[3])

    def _choose(self, text: str) -> None:
        found = _CHOICE.match(text)
        if found is None or len(self._choices) >= _MOST_KINDS:
            return
        algorithm, protocol = (
            names[int(word)] if word.isdecimal() and int(word) < len(names) else word
            for word, names in ((found["algorithm"], _ALGORITHMS), (found["protocol"], _PROTOCOLS))
        )
        channels = int(found["high"]) - int(found["low"]) + 1 if found["high"] else None
        self._choices[found["kind"] or "", int(found["bytes"])] = algorithm, protocol, channels

    def log(self) -> NcclLog:
        """Return what was gathered; raises DataError if there was no line of NCCL."""
        if not self._lines:
            raise DataError(self._source, ["expected a log of NCCL (NCCL_DEBUG=INFO), found no line of it"])
        # Earlier versions name the communicator last, so a log that was cut off may never name it. Lines
        # without a communicator are collected in one without a name.
        for origin, text in (line for early in self._early.values() for line in early):
            self._add(self._communicators.setdefault("", _Communicator(0)), -1, origin, text)
        largest = max(self._communicators.values(), key=lambda own: own.size, default=_Communicator(0))
        # A torn line has no host; the entry without a name counts only if no line names a host.
        named = {name for name in self._hosts if name} or {""}
        ranks = tuple(
            NcclRank(
                member.rank,
                member.host,
                member.device,
                member.bus_id,
                self._hosts[member.host].processes[member.pid].network,
                tuple(
                    f"{nic.name}:{nic.port}" for nic in self._hosts[member.host].processes[member.pid].nics
                ),
                member.complete,
                member.channels,
                member.nvls_channels,
                member.p2p_channels,
                member.graph_channels,
            )
            for _, member in sorted(largest.members.items())
        )
        return NcclLog(
            versions=_hosts_of(self._versions),
            size=largest.size,
            communicators=len(self._communicators),
            ranks=ranks,
            hosts=tuple(_host(name, own) for name, own in sorted(self._hosts.items()) if name in named),
            paths=_paths(largest),
            channels=largest.channels or len(largest.rings),
            rings={channel: largest.rings[channel] for channel in sorted(largest.rings)},
            trees={
                channel: dict(sorted(largest.trees[channel].items())) for channel in sorted(largest.trees)
            },
            collnet=tuple(sorted(self._collnet)),
            choices=tuple(_joined(self._choices)),
            environment={name: _hosts_of(values) for name, values in sorted(self._environment.items())},
            warnings=tuple(
                NcclWarning(one.text, one.count, tuple(sorted(one.hosts))) for one in self._warnings.values()
            ),
        )


_OF_COMMUNICATOR = ("Channel ", "Ring ", "Trees ", "Pattern ")


def _add_path(own: _Communicator, found: re.Match[str]) -> None:
    source, target, via = int(found["source"]), int(found["target"]), found["via"].strip()
    net = _NET.fullmatch(via)
    transport = f"NET/{net['net']}" if net else _transport(via)
    key = source, target, transport
    if key not in own.paths and len(own.paths) >= _MOST_PATHS:
        return
    path = own.paths[key]
    path.channels.add(int(found["channel"]))
    if net:
        (path.receiving_nics if found["end"] == "receive" else path.nics).add(int(net["nic"]))
        path.gdr[found["end"] or "send", "GDRDMA" in net["rest"]] += 1


def _transport(via: str) -> str:
    """Return a transport inside a host by its usual name: P2P/CUMEM, P2P/IPC, P2P/direct, SHM."""
    if via.startswith("P2P/"):
        kind = re.match(r"P2P/(\w{1,20})", via)
        return kind[0] if kind else "P2P"
    return "SHM" if via.startswith(("SHM", "direct shared memory")) else via.partition("/")[0][:40]


def _take_ib(own: _HostLines, origin: _Origin, text: str) -> None:
    if text.startswith("NET/IB : No device found"):
        own.without_rdma = True
    elif found := _OF_HCA.search(text):
        own.gdr[found[2]] = "" if found[1] == "Enabled" else found[3] or "disabled"
    elif text.startswith("NET/IB : Using"):
        nics = tuple(
            NcclNic(name, int(port), layer) for name, port, layer in _NIC.findall(text.partition(";")[0])
        )
        own.processes[origin.pid].nics = nics
        if oob := _OOB.search(text):
            own.interface = oob[1]


def _take_gdr(own: _HostLines, _: _Origin, text: str) -> None:
    if found := _OF_PAIR.match(text):
        own.gdr[f"GPU {found[2]} and NIC {found[3]}"] = (
            "" if found[1] == "Enabled" else found[4] or "disabled"
        )


def _take_sockets(own: _HostLines, _: _Origin, text: str) -> None:
    own.sockets = tuple(dict.fromkeys(_SOCKET.findall(text)))


def _take_bootstrap(own: _HostLines, _: _Origin, text: str) -> None:
    if not own.interface and (found := _INTERFACE.search(text.partition("Using ")[2])):
        own.interface = found[1]


def _take_nvls(own: _HostLines, _: _Origin, text: str) -> None:
    if found := _NVLS.match(text):
        own.nvls[int(found[2])] = not found[1]


def _take_network(own: _HostLines, origin: _Origin, text: str) -> None:
    found = _PLUGIN.match(text)
    if found is None:
        return
    if found[3]:
        own.processes[origin.pid].network = found[3].strip()
    else:
        own.processes[origin.pid].plugin = found[1] or found[2]


def _take_plugin(own: _HostLines, origin: _Origin, text: str) -> None:
    if _NO_PLUGIN.match(text.replace("NET/Plugin : ", "NET/Plugin: ")):
        own.without_plugin = text_of(text.partition(":")[2])
    else:
        _take_network(own, origin, text)


def _take_provider(own: _HostLines, origin: _Origin, text: str) -> None:
    if found := _PROVIDER.match(text):
        nics = tuple(NcclNic(f"{found[1]}{number}", 1, found[1]) for number in range(int(found[2])))
        own.processes[origin.pid].nics = nics


def _take_no_p2p(own: _HostLines, _: _Origin, text: str) -> None:
    if found := _NO_P2P.match(text):
        a, b = sorted(int(number) for number in found.groups() if number is not None)
        own.without_p2p.add((a, b))


_Take = Callable[[_HostLines, _Origin, str], None]
_TAKEN: tuple[tuple[str, _Take], ...] = (
    ("NET/IB : ", _take_ib),
    ("GPU Direct RDMA", _take_gdr),
    ("NET/Socket : Using", _take_sockets),
    ("Bootstrap", _take_bootstrap),
    ("NVLS multicast", _take_nvls),
    ("Using network ", _take_network),
    ("P2P plugin ", _take_network),
    ("P2P is disabled", _take_no_p2p),
    ("Could not enable P2P", _take_no_p2p),
    ("NET/Plugin", _take_plugin),
    ("NET/OFI Selected", _take_provider),
)


def _host(name: str, own: _HostLines) -> NcclHost:
    processes = [one for _, one in sorted(own.processes.items())]
    nics = Counter(one.nics for one in processes if one.nics).most_common(1)
    networks = Counter(one.network for one in processes if one.network).most_common(1)
    plugins = Counter(one.plugin for one in processes if one.plugin).most_common(1)
    nvlink = True if own.inside & {"NVL", "NVB"} or any(own.nvls.values()) else None
    return NcclHost(
        name=name,
        nics=nics[0][0] if nics else (),
        interface=own.interface,
        sockets=own.sockets,
        network=networks[0][0] if networks else "",
        without_rdma=own.without_rdma,
        plugin=plugins[0][0] if plugins else "",
        without_plugin=own.without_plugin,
        gdr=dict(sorted(own.gdr.items())),
        nvls=dict(sorted(own.nvls.items())),
        nvlink=False if own.inside and not nvlink else nvlink,
        without_p2p=tuple(sorted(own.without_p2p)),
    )


def _paths(own: _Communicator) -> tuple[NcclPath, ...]:
    return tuple(
        NcclPath(
            source,
            target,
            transport,
            tuple(sorted(lines.channels)),
            tuple(sorted(lines.nics)),
            tuple(sorted(lines.receiving_nics)),
            _is_direct(lines, "send"),
            _is_direct(lines, "receive"),
        )
        for (source, target, transport), lines in sorted(own.paths.items())
    )


def _is_direct(lines: _PathLines, end: str) -> bool | None:
    """Return whether most lines of an end report GPU Direct RDMA; None without lines.

    The majority decides because some lines may be torn.
    """
    direct, other = lines.gdr[end, True], lines.gdr[end, False]
    return direct > other if direct + other else None


def _joined(choices: Mapping[tuple[str, int], tuple[str, str, int | None]]) -> Iterator[NcclChoice]:
    """Yield the choices; equal choices for neighboring sizes of a collective become one."""
    last: NcclChoice | None = None
    for (kind, size), (algorithm, protocol, channels) in sorted(choices.items()):
        if last and (last.collective, last.algorithm, last.protocol) == (kind, algorithm, protocol):
            most = max((one for one in (last.channels, channels) if one is not None), default=None)
            last = NcclChoice(kind, last.least_bytes, size, algorithm, protocol, most)
            continue
        if last:
            yield last
        last = NcclChoice(kind, size, size, algorithm, protocol, channels)
    if last:
        yield last


def _hosts_of(values: Mapping[str, set[str]]) -> dict[str, tuple[str, ...]]:
    return {value: tuple(sorted(host for host in hosts if host)) for value, hosts in sorted(values.items())}
