"""Tuner files of NCCL's example plugin and of RCCL (2.28.3 and later), made from tables of nccl-tests.

A line is ``collective,min,max,algorithm,protocol,channels,nNodes,nRanks,numPipeOps,regBuff``. Both bounds are
included, and the first line that matches counts. NCCL's plugin runs a call on one channel if no line matches
or if the line has -1 channels. So each line gives its channels, and the last line of a collective has no
upper bound. The header is written as a comment, because the plugin would otherwise read it as a rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from exec.library_rules.choice import AlgorithmTimes, MeasuredSetting, points_of, rules_of
from probes.base import DataError, UsageError
from synth.collective import Kind

__all__ = [
    "COLLECTIVES",
    "NO_END",
    "Lines",
    "Setting",
    "environment",
    "lines_by_size",
    "lines_of",
    "merged",
    "read_lines",
    "write_lines",
]

COLLECTIVES: dict[Kind, str] = {
    "broadcast": "broadcast",
    "reduce": "reduce",
    "all_gather": "allgather",
    "reduce_scatter": "reducescatter",
    "all_reduce": "allreduce",
}
ALGORITHMS = ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
PROTOCOLS = ("ll", "ll128", "simple")
# MAXCHANNELS of NCCL's device.h.
_MOST_CHANNELS = 64
# The largest size_t, the type of the plugin's sizes.
NO_END = (1 << 64) - 1
# NCCL's plugin reads a line into 256 bytes (MAX_LINE_LENGTH), the last of which is a zero.
_MOST_CHARACTERS = 255
_HEADER = "# collective_type,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks,numPipeOps,regBuff"
# Names of collectives in NCCL_ALGO and NCCL_PROTO.
_FUNCTIONS = {
    "broadcast": "Broadcast",
    "reduce": "Reduce",
    "allgather": "AllGather",
    "reducescatter": "ReduceScatter",
    "allreduce": "AllReduce",
}


@dataclass(frozen=True)
class Setting:
    """Values of NCCL_ALGO and NCCL_PROTO, and the number of channels."""

    algorithm: str
    protocol: str
    channels: int

    @classmethod
    def of(cls, text: str) -> Setting:
        """Return the setting that ``ring:simple:16`` names; raises UsageError."""
        words = text.lower().split(":")
        if len(words) != 3 or words[0] not in ALGORITHMS or words[1] not in PROTOCOLS:
            raise UsageError(
                f"{text}: expected ALGORITHM:PROTOCOL:CHANNELS, such as ring:simple:16",
                hint=f"Algorithms: {', '.join(ALGORITHMS)}; protocols: {', '.join(PROTOCOLS)}.",
            )
        if not (words[2].isascii() and words[2].isdecimal() and 1 <= int(words[2]) <= _MOST_CHANNELS):
            raise UsageError(f"{text}: expected 1 to {_MOST_CHANNELS} channels, found {words[2]!r}")
        return cls(words[0], words[1], int(words[2]))

    def __str__(self) -> str:
        return f"{self.algorithm}:{self.protocol}:{self.channels}"


# The lines of a file, in order, by (collective, nodes, ranks).
Lines = dict[tuple[str, str, str], tuple[str, ...]]


def lines_of(tried: Sequence[MeasuredSetting]) -> Lines:
    """Return the lines that select the fastest setting for every size.

    All tables must have the same numbers of ranks and hosts. Sizes that some tables lack are ignored. Raises
    UsageError if tables differ in these numbers, or if no size of a collective is in all of its tables.
    """
    if not tried:
        raise UsageError("no table of nccl-tests was given")
    worlds = {(len(each.report.hosts), each.report.ranks) for each in tried}
    if len(worlds) > 1:
        listed = ", ".join(
            f"{each.source}: {each.report.ranks} on {len(each.report.hosts)} hosts" for each in tried
        )
        raise UsageError(f"the tables are of different numbers of ranks: {listed}")
    ((nodes, ranks),) = worlds
    table: Lines = {}
    for kind, points in points_of(tried, COLLECTIVES).items():
        table |= lines_by_size(kind, points, nodes, ranks)
    return table


def lines_by_size(kind: Kind, points: Sequence[AlgorithmTimes], nodes: int, ranks: int) -> Lines:
    """Return the lines of a collective that select the fastest setting for every size."""
    rules = rules_of(points)
    ends = [rule.from_bytes - 1 for rule in rules[1:]] + [NO_END]
    lines = []
    for rule, end in zip(rules, ends, strict=True):
        best = Setting.of(rule.algorithm)
        cells = (
            *(COLLECTIVES[kind], rule.from_bytes, end, best.algorithm, best.protocol, best.channels),
            *(nodes, ranks, -1, -1),
        )
        lines.append(",".join(map(str, cells)))
    return {(COLLECTIVES[kind], str(nodes), str(ranks)): tuple(lines)}


def read_lines(text: str, source: str) -> Lines:
    """Return the lines of a tuner file; raises DataError for a line that NCCL would not read as a rule."""
    table: dict[tuple[str, str, str], list[str]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.strip()
        if not bare or bare.startswith("#"):
            continue
        cells = [cell.strip().lower() for cell in bare.split(",")]
        if len(cells) < 8 or cells[0] not in COLLECTIVES.values() or len(bare) > _MOST_CHARACTERS:
            raise DataError(
                source,
                [f"line {number}: expected 8 fields or more, the first a collective, found {bare[:60]!r}"],
                hint="A header must be a comment: NCCL reads any other line as a rule.",
            )
        table.setdefault((cells[0], cells[6], cells[7]), []).append(bare)
    return {key: tuple(lines) for key, lines in table.items()}


def merged(old: Lines, new: Lines) -> Lines:
    """Return both; new lines replace old ones for the same collective, nodes and ranks."""
    return new | {key: lines for key, lines in old.items() if key not in new}


def write_lines(table: Lines, notes: Sequence[str] = ()) -> str:
    """Return the text of a file.

    Lines for any number of nodes or ranks (-1) come last, because the first match counts.
    """
    ordered = sorted(table.items(), key=lambda item: ("-1" in item[0][1:], item[0]))
    lines = [line for _, found in ordered for line in found]
    return "\n".join([*(f"# {note}"[:_MOST_CHARACTERS] for note in notes), _HEADER, *lines]) + "\n"


def environment(table: Mapping[tuple[str, str, str], Sequence[str]]) -> list[str]:
    """Return NCCL_ALGO and NCCL_PROTO for a table; raises UsageError if the setting depends on size."""
    algorithms, protocols = [], []
    for (collective, _, _), lines in table.items():
        words = {tuple(line.split(",")[3:5]) for line in lines}
        if len(words) > 1:
            raise UsageError(
                f"{collective} has {len(words)} fastest settings, by size, and the environment holds one",
                hint="Write a tuner file instead.",
            )
        ((algorithm, protocol),) = words
        algorithms.append(f"{_FUNCTIONS[collective]}:{algorithm}")
        protocols.append(f"{_FUNCTIONS[collective]}:{protocol}")
    return [f'NCCL_ALGO="{";".join(algorithms)}"', f'NCCL_PROTO="{";".join(protocols)}"']
