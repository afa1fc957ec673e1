"""The default text output of ncclras and rcclras: communicators, and where their ranks differ.

The format is that of NCCL's src/ras/client_support.cc since 2.24. The text does not name a communicator whose
ranks agree. If the ranks differ, it names a few of them and only counts the others. Counted ranks can be
identified only if they are all the remaining ranks of the communicator.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field

import msgspec

from probes.base import DataError

__all__ = ["IN_PROGRESS", "Communicator", "Dump", "is_ras_text", "ras_text_dumps"]

_TABLE = re.compile(r"^.*\bGroup +Comms +Nodes +Ranks +Ranks +Ranks +Status +Errors[ \t\r]*$", re.MULTILINE)
_GROUP = re.compile(
    r"([0-9]{1,9}) +([0-9]{1,9}) +[0-9]+ +[0-9]+(?:-[0-9]+)? +([0-9]{1,9}) +[0-9]+ +[A-Z]+ +[A-Z,]+"
)
_BLOCK = re.compile(r"#([0-9]{1,9})-([0-9]{1,9}) \(([0-9a-f]{1,16})\) (INCOMPLETE|ERROR|MISMATCH)")
_PROCESS = re.compile(r"Process ([0-9]{1,12}) on node (\S+)")
_DIFFERENT = re.compile(r"Communicator ranks have different (\w+)")
_SAID = (
    r"(?:ha(?:ve|s) (?:launched up to operation (?P<count>[0-9]{1,18})|(?P<none>not launched any operations)"
    r"|status (?P<status>[A-Z]+))|reported (?P<error>[A-Z][A-Za-z ]*[a-z]))"
)
_SEVERAL = re.compile(rf"([0-9]{{1,9}}) ranks {_SAID}")
_ONE = re.compile(
    rf"Rank (?P<rank>[0-9]{{1,9}})(?: {_SAID})? -- "
    r"(?:GPU .*managed by process (?P<pid>[0-9]{1,12}) on node (?P<host>\S+)|\[process information)"
)
_MISSING = re.compile(r"The missing ranks?: ([0-9, ]+)")
_SECTION = re.compile(r"INCOMPLETE|DEAD|TIMEOUT|Errors|Warnings")
# ncclInProgress
IN_PROGRESS = 7
# ncclResult_t by the words of RAS.
_ERRORS = {
    "Unhandled CUDA error": 1,
    "System error": 2,
    "Internal error": 3,
    "Invalid argument": 4,
    "Invalid usage": 5,
    "Remote process error": 6,
}
# Unknown words count as ncclInternalError.
_OTHER_ERROR = 3
# NCCL 2.24 and 2.25 count the collectives of all kinds together.
_ALL_KINDS = {"collective": "collectives"}
_MOST_COMMUNICATORS, _MOST_RANKS = 1 << 16, 1 << 21


class _RasStatus(msgspec.Struct):
    """The state of a rank; errors are those of ncclResult_t."""

    init_state: int = 0
    async_error: int = 0
    abort_flag: bool = False
    unresponsive: bool = False
    considered_dead: bool = False


class _RasRank(msgspec.Struct):
    """A rank of a communicator, and the collectives of each kind that it has begun."""

    rank: int
    host: str = ""
    pid: int = 0
    status: _RasStatus = msgspec.field(default_factory=_RasStatus)
    collective_counts: dict[str, int] = {}


class Communicator(msgspec.Struct):
    """A communicator of ``size`` ranks; ``most`` has the highest counts of ranks that are not named."""

    hash: str
    size: int
    ranks: list[_RasRank] = []
    missing_ranks: list[_RasRank] = []
    secondary_hash: str = ""
    most: dict[str, int] = {}


class Dump(msgspec.Struct):
    """One answer of RAS."""

    communicators: list[Communicator]
    timestamp: str = ""


@dataclass
class _Statement:
    """A count, status or error that a number of ``ranks`` share; ``named`` are the ranks that are listed."""

    ranks: int
    count: int | None = None
    status: str = ""
    error: str = ""
    named: set[int] = field(default_factory=set)


@dataclass
class _Block:
    """The report on one communicator, by kind of difference and by rank."""

    size: int
    said: dict[str, list[_Statement]] = field(default_factory=lambda: defaultdict(list))
    missing: set[int] = field(default_factory=set)
    processes: dict[int, tuple[int, str]] = field(default_factory=dict)


def is_ras_text(text: str) -> bool:
    """Return whether this is the text of ncclras."""
    return bool(_TABLE.search(text))


def ras_text_dumps(text: str, source: str) -> list[Dump]:
    """Return the dumps in a text, in order; raises DataError for more ranks than a job can have."""
    tables = [*_TABLE.finditer(text)]
    ends = [*(table.start() for table in tables[1:]), len(text)]
    return [_dump(text[table.end() : end], source) for table, end in zip(tables, ends, strict=True)]


def _dump(text: str, source: str) -> Dump:
    """Return the dump below one table of communicators."""
    groups: dict[int, tuple[int, int]] = {}
    blocks: dict[tuple[int, int], tuple[str, _Block]] = {}
    processes: set[tuple[int, str]] = set()
    dead: set[tuple[int, str]] = set()
    section, block, kind, said = "", None, "", None
    for line in map(str.strip, text.splitlines()):
        if group := _GROUP.fullmatch(line):
            groups[int(group[1])] = int(group[2]), int(group[3])
        elif found := _BLOCK.match(line):
            place, name = (int(found[1]), int(found[2])), f"0x{int(found[3], 16):x}"
            size = groups.get(place[0], (0, 0))[1]
            block = blocks.setdefault(place, (name, _Block(size)))[1]
            section, kind, said = found[4], found[4], None
        elif _SECTION.fullmatch(line):
            section, block = line, None
        elif block is None:
            if process := _PROCESS.match(line):
                owner = int(process[1]), process[2]
                processes.add(owner)
                if section == "DEAD":
                    dead.add(owner)
        elif different := _DIFFERENT.match(line):
            kind, said = _ALL_KINDS.get(different[1], different[1]), None
        elif several := _SEVERAL.match(line):
            said = _statement(int(several[1]), several)
            block.said[kind].append(said)
        elif one := _ONE.match(line):
            rank = int(one["rank"])
            if rank >= block.size:
                # For communicators that no longer exist, NCCL 2.27.3 lists ranks with arbitrary numbers.
                continue
            if one["pid"]:
                block.processes[rank] = int(one["pid"]), one["host"]
            if section == "INCOMPLETE":
                block.missing.add(rank)
                continue
            if one["count"] or one["none"] or one["status"] or one["error"]:
                said = _statement(1, one)
                block.said[kind].append(said)
            if said is not None:
                said.named.add(rank)
        elif gone := _MISSING.match(line):
            numbers = map(int, re.findall(r"[0-9]{1,9}", gone[1]))
            block.missing.update(number for number in numbers if number < block.size)
    if sum(count for count, _ in groups.values()) > _MOST_COMMUNICATORS:
        raise DataError(source, [f"more than {_MOST_COMMUNICATORS} communicators"])
    if sum(block.size * max(1, len(block.said)) for _, block in blocks.values()) > _MOST_RANKS:
        raise DataError(source, [f"more than {_MOST_RANKS} ranks"])
    if len(processes) == 1:
        # Before NCCL 2.28 a missing rank is listed without its process. If one rank is missing and one
        # process is listed, they belong together.
        for _, block in blocks.values():
            for rank in block.missing if len(block.missing) == 1 else ():
                block.processes.setdefault(rank, next(iter(processes)))
    return Dump(
        [
            _communicator(*blocks[place], dead) if place in blocks else Communicator(f"#{at}-{number}", size)
            for at, (count, size) in groups.items()
            for number in range(count)
            for place in [(at, number)]
        ]
    )


def _statement(ranks: int, found: re.Match[str]) -> _Statement:
    count = 0 if found["none"] else None if found["count"] is None else int(found["count"])
    return _Statement(ranks, count, found["status"] or "", found["error"] or "")


def _communicator(name: str, block: _Block, dead: set[tuple[int, str]]) -> Communicator:
    ranks: dict[int, _RasRank] = {}
    most: dict[str, int] = {}

    def rank_of(number: int) -> _RasRank:
        pid, host = block.processes.get(number, (0, ""))
        return ranks.setdefault(number, _RasRank(number, host, pid))

    for kind, several in block.said.items():
        named = {number for said in several for number in said.named}
        rest = block.size - len(named | block.missing)
        unnamed = [said for said in several if not said.named]
        for said in several:
            numbers = said.named
            if unnamed == [said] and said.ranks == rest:
                numbers = {*range(block.size)} - named - block.missing
            if said.count is not None and not numbers:
                most[kind] = max(said.count, most.get(kind, 0))
            for number in numbers:
                _tell(rank_of(number), kind, said)
    missing = [
        _RasRank(number, host, pid, _RasStatus(unresponsive=True, considered_dead=(pid, host) in dead))
        for number in sorted(block.missing)
        for pid, host in [block.processes.get(number, (0, ""))]
    ]
    return Communicator(name, block.size, [ranks[number] for number in sorted(ranks)], missing, most=most)


def _tell(rank: _RasRank, kind: str, said: _Statement) -> None:
    """Set the count, status or error of a rank."""
    if said.count is not None:
        rank.collective_counts = {**rank.collective_counts, kind: said.count}
    if said.error:
        rank.status.async_error = _ERRORS.get(said.error, _OTHER_ERROR)
    if said.status == "INIT":
        rank.status.init_state = IN_PROGRESS
    if said.status == "ABORT":
        rank.status.abort_flag = True
