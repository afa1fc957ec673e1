"""Tuner files of NCCLX (``comms/ncclx/meta/tuner`` of meta-pytorch/torchcomms), CSV and JSON.

A rule fits by the collective, the nodes, the ranks of a node and the bytes for each rank, nBytes / nRanks
rounded down, as an interval; the first that fits counts, and what none fits is NCCLX's own choice. A word or
a number that is not understood ends the communicator's initialization, so a header must be a comment. A file
is JSON if its name ends in .json.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from exec.library_rules.nccl import Lines
from probes.errors import UsageError

__all__ = ["csv_text", "json_text"]

_HEADER = "# collective,bytesPerRank,algorithm,protocol,channels,nNodes,nLocalRanks"
_NO_END = (1 << 64) - 1


def csv_text(table: Lines, notes: Sequence[str] = ()) -> str:
    """The file as CSV; commas within brackets divide no fields."""
    rows = [
        f"{rule['collective']},{rule['bytesPerRank']},{rule['algorithm']},{rule['protocol']},"
        f"{rule['channels']},{rule['nNodes']},{rule['nLocalRanks']}"
        for rule in _rules(table)
    ]
    return "\n".join([*(f"# {note}" for note in notes), _HEADER, *rows, ""])


def json_text(table: Lines) -> str:
    """The same as JSON, which has no comments."""
    names = ("collective", "bytesPerRank", "nNodes", "nLocalRanks")
    rules = [
        {
            "filter": {name: rule[name] for name in names},
            "config": {name: rule[name] for name in ("algorithm", "protocol", "channels")},
        }
        for rule in _rules(table)
    ]
    return json.dumps({"rules": rules}, indent=2) + "\n"


def _rules(table: Lines) -> Iterator[dict[str, Any]]:
    """The lines of NCCL's form as rules; raises UsageError where the ranks of nodes are unequal."""
    for (collective, nodes, ranks), lines in sorted(table.items()):
        each, rest = divmod(int(ranks), int(nodes))
        if rest:
            raise UsageError(f"{ranks} ranks on {nodes} nodes: NCCLX knows only nodes of equally many ranks")
        for line in lines:
            cells = line.split(",")
            low, high = int(cells[1]) // int(ranks), int(cells[2])
            end = "" if high == _NO_END else str((high + 1) // int(ranks))
            yield {
                "collective": collective,
                "bytesPerRank": f"[{low},{end})",
                "algorithm": cells[3],
                "protocol": cells[4],
                "channels": int(cells[5]),
                "nNodes": int(nodes),
                "nLocalRanks": each,
            }
