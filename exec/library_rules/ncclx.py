"""Tuner files of NCCLX (``comms/ncclx/meta/tuner`` of meta-pytorch/torchcomms), CSV and JSON.

A rule matches a collective, a number of nodes, a number of ranks per node, and an interval of bytes per rank
(nBytes / nRanks rounded down). The first rule that matches counts. If none matches, NCCLX chooses by itself.
An unreadable field makes the initialization of the communicator fail, so the header is a comment. NCCLX reads
a file as JSON if its name ends in .json.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from exec.library_rules.nccl import NO_END, Lines
from probes.base import UsageError

__all__ = ["csv_text", "json_text"]

_HEADER = "# collective,bytesPerRank,algorithm,protocol,channels,nNodes,nLocalRanks"


def csv_text(table: Lines, notes: Sequence[str] = ()) -> str:
    """Return the rules as CSV; NCCLX does not split fields at the commas of intervals."""
    rows = [
        f"{rule['collective']},{rule['bytesPerRank']},{rule['algorithm']},{rule['protocol']},"
        f"{rule['channels']},{rule['nNodes']},{rule['nLocalRanks']}"
        for rule in _rules(table)
    ]
    return "\n".join([*(f"# {note}" for note in notes), _HEADER, *rows, ""])


def json_text(table: Lines) -> str:
    """Return the rules as JSON, which has no place for notes."""
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
    """Yield the lines of an NCCL tuner file as rules.

    Raises UsageError for nodes with unequal numbers of ranks.
    """
    for (collective, nodes, ranks), lines in sorted(table.items()):
        each, rest = divmod(int(ranks), int(nodes))
        if rest:
            raise UsageError(
                f"{ranks} ranks on {nodes} nodes: NCCLX knows only nodes with equally many ranks"
            )
        for line in lines:
            cells = line.split(",")
            low, high = int(cells[1]) // int(ranks), int(cells[2])
            end = "" if high == NO_END else str((high + 1) // int(ranks))
            yield {
                "collective": collective,
                "bytesPerRank": f"[{low},{end})",
                "algorithm": cells[3],
                "protocol": cells[4],
                "channels": int(cells[5]),
                "nNodes": int(nodes),
                "nLocalRanks": each,
            }
