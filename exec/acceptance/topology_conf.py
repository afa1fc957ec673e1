"""Slurm's topology.conf: the nodes of leaf switches (topology/tree) or of blocks (topology/block).

Each line holds ``Key=Value`` words: ``SwitchName=s0 Nodes=gpu[0-5]``, ``SwitchName=s2 Switches=s[0-1]``,
``BlockName=b0 Nodes=gpu[0-17]``, ``BlockSizes=18``. Keys are case-insensitive, ``#`` starts a comment, and a
line that ends in a backslash continues on the next. ``LinkSpeed`` has no unit, so it does not give
the trunk's rate.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from exec.launcher import parse
from probes.base import UsageError, quoted

__all__ = ["is_topology", "leaves"]

# The first key of a line, which says what the line defines, and the keys that may follow it.
_KEYS = {
    "switchname": ("nodes", "switches", "linkspeed"),
    "blockname": ("nodes",),
    "blocksizes": (),
}
_FIRST = re.compile(rf"\s*({'|'.join(_KEYS)})\s*=\s*[^\s\"'=]", re.IGNORECASE)


def is_topology(text: str) -> bool:
    """Return whether any line begins with a key of topology.conf and a value without quotes."""
    return any(_FIRST.match(line) for line in text.splitlines())


def leaves(text: str, problems: list[str]) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield (line, name, nodes) of each switch or block with nodes; add a problem for each wrong line."""
    names: set[str] = set()
    below: list[tuple[str, str]] = []
    for where, line in _lines(text):
        words = _words(where, line, problems)
        name = words.get("switchname") or words.get("blockname")
        if name is None:
            continue
        if name in names:
            problems.append(f"{where}: {quoted(name)} is defined twice")
        names.add(name)
        below += [(where, each) for each in _expanded(where, words.get("switches", ""), problems)]
        if nodes := _expanded(where, words.get("nodes", ""), problems):
            yield where, name, nodes
        elif "nodes" not in words and "switches" not in words:
            problems.append(f"{where}: expected Nodes=… or Switches=… behind {quoted(name)}")
    problems += [f"{where}: there is no switch {quoted(name)}" for where, name in below if name not in names]


def _lines(text: str) -> Iterator[tuple[str, str]]:
    """Yield ("line N", content) of each line without comments, continued lines joined."""
    started, parts = 0, ""
    for number, line in enumerate(text.splitlines(), start=1):
        started = started or number
        content = line.partition("#")[0].rstrip()
        if content.endswith("\\"):
            parts += content[:-1]
            continue
        if (parts + content).strip():
            yield f"line {started}", parts + content
        started, parts = 0, ""
    if parts.strip():
        yield f"line {started}", parts


def _words(where: str, line: str, problems: list[str]) -> dict[str, str]:
    """Return {key in lower case: value} of a line; a wrong word gives a problem and {}."""
    found: dict[str, str] = {}
    for word in re.sub(r"\s*=\s*", "=", line).split():
        key, _, value = word.partition("=")
        key = key.lower()
        first = next(iter(found), key)
        allowed = (first, *_KEYS[first]) if first in _KEYS else ()
        if not value or key in found or key not in allowed:
            problems.append(f"{where}: expected words such as SwitchName=s1 Nodes=…, found {quoted(word)}")
            return {}
        found[key] = value
    return found


def _expanded(where: str, text: str, problems: list[str]) -> tuple[str, ...]:
    if not text:
        return ()
    try:
        return tuple(entry.host for entry in parse(text))
    except UsageError as error:
        problems.append(f"{where}: {error.message}")
        return ()
