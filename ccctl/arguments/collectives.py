"""The collectives that `--collective` means: one by name, several at once, or those of a file.

``broadcast:0-7,all_reduce:8-15`` means two collectives at once, each on its own ranks; ``broadcast@3:0-7``
has root 3. A file (TOML or JSON) lists collectives, or says of each chunk where it is and where it must go.
Or it lists the groups of a training step, each with its size and the time from which its data is there. A
folder of Chakra traces, one for each rank, says the same of a real step.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ccctl import console
from ccctl.arguments.networks import parse_ranks
from ccctl.artifacts import is_folder, read_document, read_input
from ccctl.errors import CcctlError, DataError, UsageError
from probes.base import parse_seconds, parse_size, plural, quoted

if TYPE_CHECKING:
    from synth.network import Network
    from synth.portfolio import CollectiveRequest
    from synth.side_by_side import StepGroup
    from synth.traces import TracedCollective

__all__ = ["has_groups", "parse_collectives", "read_groups"]

# Most chunks that one entry may count: a mistyped count is refused before its chunks fill the memory.
_MOST_CHUNKS = 1 << 20
# A step of more groups takes hours to plan.
_MOST_GROUPS = 256
# So many collectives of a trace are planned, in a few minutes on 64 ranks; most traces have thousands.
_MOST_TRACED = 32
_GROUP = {"name", "kind", "ranks", "root", "size", "release"}


def parse_collectives(
    text: str, ranks: int, *, members: str | None = None, root: int | None = None
) -> tuple[CollectiveRequest, ...]:
    """Return what `--collective`, `--ranks` and `--root` ask for on a network of ``ranks``.

    Raises UsageError, DataError or MissingInputError.
    """
    if text.endswith((".toml", ".json")):
        if members is not None or root is not None:
            raise UsageError("--ranks and --root: the file says them itself")
        return tuple(_read(text, ranks))
    # Split only at commas before a letter: the name of a collective begins with a letter, a rank does not.
    named = re.split(r",(?=\s*[A-Za-z])", text)
    if len(named) > 1 and members is not None:
        raise UsageError("--ranks: several collectives have ranks of their own, as in broadcast:0-7")
    return tuple(_named(part.strip(), members, root) for part in named)


def has_groups(text: str) -> bool:
    """Return whether `--collective` names groups or traces; raises DataError or MissingInputError."""
    return _has_traces(text) or (text.endswith((".toml", ".json")) and "group" in read_document(text))


def read_groups(path: str, network: Network) -> list[StepGroup]:
    """Return the groups of a TOML or JSON file, or of the Chakra traces in a folder.

    A table with several sets of ranks stands for an equal group on each set. Of traces with more collectives
    than can be planned at once, those in a row that move most data are returned. Raises DataError,
    MissingInputError or UnavailableError.
    """
    if _has_traces(path):
        return _traced_groups(Path(path), network)
    ranks = network.ranks
    document = read_document(path)
    problems = [f"{key}: unknown; expected group" for key in document.keys() - {"group"}]
    found = [
        group
        for at, entry in enumerate(_tables(document, "group", problems))
        for group in _groups(entry, f"group[{at}]", ranks, problems)
    ]
    if len(found) > _MOST_GROUPS:
        problems.append(f"group: expected at most {_MOST_GROUPS} groups, found {len(found)}")
    if not found and not problems:
        problems.append("group: expected at least one")
    if problems:
        raise DataError(
            path,
            problems[:20],
            hint='Such as [[group]] kind = "all_reduce", ranks = ["0-7", "8-15"], size = "64M".',
        )
    return found


def _has_traces(path: str) -> bool:
    return is_folder(path) and any(Path(path).glob("*.et"))


def _traced_groups(folder: Path, network: Network) -> list[StepGroup]:
    """Return the groups of a training step by the traces ``*.RANK.et`` and process groups in a folder."""
    from synth.side_by_side import StepGroup
    from synth.traces import busiest, trace_nodes, traced_collectives

    traces, problems = {}, []
    for file in sorted(folder.glob("*.et")):
        rank = file.suffixes[-2][1:] if len(file.suffixes) > 1 else ""
        if not rank.isdecimal() or int(rank) >= network.ranks or int(rank) in traces:
            problems.append(
                f"{file.name}: expected a name such as step.3.et, a trace for each of the ranks "
                f"0 to {network.ranks - 1}"
            )
            continue
        try:
            traces[int(rank)] = trace_nodes(read_input(str(file))[0])
        except UsageError as error:
            problems.append(f"{file.name}: {error.message}")
    if problems:
        raise DataError(str(folder), problems[:20])
    try:
        found = traced_collectives(traces, _process_groups(folder), network.ranks, _LeastTimes(network))
    except UsageError as error:
        raise DataError(str(folder), [error.message], hint=error.hint) from error
    if not found:
        raise DataError(str(folder), ["expected at least one collective of several ranks"])
    chosen = busiest(found, _MOST_TRACED)
    if len(chosen) < len(found):
        console.note(
            f"{folder}: of {plural(len(found), 'collective')} the {len(chosen)} in a row that move most data "
            f"are planned, from {chosen[0].start_s:.3g} to {chosen[-1].start_s:.3g} s of the step"
        )
    if not any(node.seconds for nodes in traces.values() for node in nodes if not node.kind):
        console.note(f"{folder}: no computation states how long it takes: all count as 0")
    return [
        StepGroup(f"{one.kind} {at}", _request_of(one), one.size_bytes, one.start_s - chosen[0].start_s)
        for at, one in enumerate(chosen)
    ]


def _request_of(one: TracedCollective) -> CollectiveRequest:
    from synth.collective import kind_of
    from synth.portfolio import CollectiveRequest

    return CollectiveRequest(kind_of(one.kind), one.ranks[0], tuple(sorted(one.ranks)))


@dataclass(frozen=True)
class _LeastTimes:
    """The proven least times of collectives alone, on links between their own ranks if those suffice.

    Most groups of a step have equal links, so their times are kept by these.
    """

    network: Network
    known_s: dict[tuple[object, ...], float] = field(default_factory=dict)

    def __call__(self, one: TracedCollective) -> float:
        from synth.networks import restricted
        from synth.portfolio import CollectiveRequest

        request = _request_of(one)
        inner, _ = restricted(self.network, request.members)
        among = CollectiveRequest(request.kind, request.members.index(request.root))
        key = (one.size_bytes, among, *inner.columns)
        if key not in self.known_s:
            found_s = _least_s(inner, among, one.size_bytes)
            if math.isinf(found_s):
                return _least_s(self.network, request, one.size_bytes)
            self.known_s[key] = found_s
        return self.known_s[key]


def _least_s(network: Network, asked: CollectiveRequest, size_bytes: int) -> float:
    from synth.bounds import bounds
    from synth.portfolio import Request, cut

    request = Request(network, asked.kind, size_bytes=size_bytes, collectives=(asked,))
    return bounds(network, *cut(request, 1), fluid=True)[0].time_s


def _process_groups(folder: Path) -> dict[str, list[int]]:
    """Return the ranks of process groups by name, as ASTRA-sim's JSON files beside the traces list them."""
    found: dict[str, list[int]] = {}
    for file in sorted(folder.glob("*.json")):
        for name, members in read_document(str(file)).items():
            if isinstance(members, list) and all(type(rank) is int for rank in members):
                found[name] = members
    return found


def _groups(entry: dict[str, Any], path: str, ranks: int, problems: list[str]) -> list[StepGroup]:
    from synth.collective import collective, kind_of
    from synth.portfolio import CollectiveRequest
    from synth.side_by_side import StepGroup

    before = len(problems)
    problems += [f"{path}.{key}: unknown" for key in sorted(entry.keys() - _GROUP)]
    release = entry.get("release", "0")
    size_bytes, release_s, kind = 1, 0.0, None
    try:
        kind = kind_of(str(entry.get("kind")))
        size_bytes = parse_size(str(entry.get("size")), f"{path}.size")
        release_s = 0.0 if release in (0, "0") else parse_seconds(str(release), f"{path}.release")
    except CcctlError as error:
        problems.append(error.message if kind else f"{path}.kind: {error.message}")
    listed = entry.get("ranks", f"0-{ranks - 1}")
    sets = listed if isinstance(listed, list) and any(isinstance(one, str) for one in listed) else [listed]
    found = []
    for number, one in enumerate(sets):
        members = tuple(_ranks_of(one, f"{path}.ranks", ranks, problems))
        root, name = entry.get("root", _first(members)), str(entry.get("name", entry.get("kind")))
        if kind is None or not members:
            continue
        try:
            collective(kind, ranks, 1, root if isinstance(root, int) else -1, members)
        except UsageError as error:
            problems.append(f"{path}.{error.argument or 'kind'}{error.message}")
            continue
        name = name if len(sets) == 1 else f"{name} {number}"
        found.append(StepGroup(name, CollectiveRequest(kind, root, members), size_bytes, release_s))
    return found if len(problems) == before else []


def _named(text: str, members: str | None, root: int | None) -> CollectiveRequest:
    from synth.collective import kind_of
    from synth.portfolio import CollectiveRequest

    match = re.fullmatch(r"([\w\s-]+)(?:@([0-9]{1,9}))?(?::(.+))?", text)
    try:
        kind = kind_of(match[1] if match else text)
    except UsageError as error:
        error.hint += "; on some ranks broadcast@3:0-7; several with commas; or a file"
        raise
    assert match is not None
    if match[3] and members is not None:
        raise UsageError(f"--ranks: --collective {quoted(text)} has ranks of its own")
    listed = match[3] or members
    chosen = parse_ranks(listed) if listed is not None else ()
    at = int(match[2]) if match[2] else root
    return CollectiveRequest(kind, at if at is not None else _first(chosen), chosen)


def _first(chosen: tuple[int, ...]) -> int:
    return chosen[0] if chosen else 0


def _read(path: str, ranks: int) -> list[CollectiveRequest]:
    from synth.collective import kind_of
    from synth.portfolio import CollectiveRequest

    document = read_document(path)
    problems = [
        f"{key}: unknown; expected collective or chunk" for key in document.keys() - {"collective", "chunk"}
    ]
    requests: list[CollectiveRequest] = []
    for at, entry in enumerate(_tables(document, "collective", problems)):
        try:
            kind = kind_of(str(entry.get("kind")))
        except UsageError as error:
            problems.append(f"collective[{at}].kind: {error.message}; {error.hint}")
            continue
        members = _ranks_of(entry.get("ranks", []), f"collective[{at}].ranks", ranks, problems)
        root = entry.get("root", _first(tuple(members)))
        if not isinstance(root, int):
            problems.append(f"collective[{at}].root: expected a rank, found {root!r}")
        else:
            requests.append(CollectiveRequest(kind, root, tuple(members)))
    chunks = _tables(document, "chunk", problems)
    if chunks:
        requests.append(_custom(chunks, ranks, problems))
    if not requests and not problems:
        problems.append("expected tables named collective or chunk")
    if problems:
        raise DataError(path, problems[:20], hint='Such as [[chunk]] from = 0, to = "1-3", reduce = false.')
    return requests


def _custom(chunks: list[dict[str, Any]], ranks: int, problems: list[str]) -> CollectiveRequest:
    from synth.collective import custom
    from synth.portfolio import CollectiveRequest
    from synth.rank_sets import of_sets

    sources: list[list[int]] = []
    targets: list[list[int]] = []
    reduced: list[bool] = []
    for at, entry in enumerate(chunks):
        source = _ranks_of(entry.get("from"), f"chunk[{at}].from", ranks, problems)
        target = _ranks_of(entry.get("to"), f"chunk[{at}].to", ranks, problems)
        count, reduce = entry.get("count", 1), entry.get("reduce", False)
        if type(count) is not int or not 1 <= count <= _MOST_CHUNKS:
            problems.append(f"chunk[{at}].count: expected 1 to {_MOST_CHUNKS}, found {count!r}")
            continue
        if not isinstance(reduce, bool):
            problems.append(f"chunk[{at}].reduce: expected true or false, found {reduce!r}")
        problems += [
            f"chunk[{at}].{key}: unknown" for key in sorted(entry.keys() - {"from", "to", "count", "reduce"})
        ]
        for side, name in ((source, "from"), (target, "to")):
            if not side:
                problems.append(f"chunk[{at}].{name}: expected at least one rank")
        sources += [source] * count
        targets += [target] * count
        reduced += [bool(reduce)] * count
    if problems:
        return CollectiveRequest("custom")
    return CollectiveRequest("custom", sets=custom(ranks, of_sets(sources), of_sets(targets), reduced))


def _ranks_of(value: object, path: str, ranks: int, problems: list[str]) -> list[int]:
    """Return ranks from a number, a list of numbers, or a text such as 0,2,4-7."""
    try:
        found = list(parse_ranks(value, path)) if isinstance(value, str) else value
    except CcctlError as error:
        problems.append(error.message)
        return []
    found = [found] if type(found) is int else found
    if not isinstance(found, list) or not all(type(rank) is int for rank in found):
        problems.append(f'{path}: expected ranks such as 3, [0, 2] or "0,2,4-7", found {value!r}')
        return []
    wrong = [rank for rank in found if not 0 <= rank < ranks]
    if wrong:
        problems.append(f"{path}: there is no rank {wrong[0]} on a network of {ranks}")
    return sorted(set(found) - set(wrong))


def _tables(document: dict[str, Any], name: str, problems: list[str]) -> list[dict[str, Any]]:
    tables = document.get(name, [])
    if not isinstance(tables, list) or not all(isinstance(entry, dict) for entry in tables):
        problems.append(f"{name}: expected a list of tables")
        return []
    return tables
