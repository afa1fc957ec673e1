"""Files of other tools: reports beside our own, dumps of jobs, logs of NCCL, checks of hosts."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ccctl import console
from ccctl.artifacts import codec
from ccctl.artifacts.codec import Artifact
from ccctl.artifacts.files import is_folder, read_input
from ccctl.errors import DataError, UsageError
from probes.base import some
from probes.files import MOST_TEXT_BYTES, inflated

if TYPE_CHECKING:
    from exec.benchmark import Report
    from exec.benchmark.foreign import Inspected, Recorded, SentMessages
    from synth.collective import Kind

__all__ = [
    "Dumps",
    "ForeignFiles",
    "dumps_in",
    "evidence_in",
    "is_log",
    "logs_in",
    "read_any",
    "read_files",
    "recorded_in",
    "schedule_in",
    "sent_in",
]

# The first bytes of an artifact: JSON, perhaps after a byte order mark, or gzip.
_GZIP = b"\x1f\x8b"
_ARTIFACT_BEGINS = (b"{", b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", _GZIP)
_MOST_NAMED = 4
_SCHEDULE = re.compile(rb'"schema":\s*"ccctl/(schedule|periodic|symmetric|selection|program)/')


def read_any(
    path: str, *kinds: str, ranks: Callable[[], int] | None = None, collective: Kind | None = None
) -> Artifact:
    """Return an artifact of one of ``kinds`` (any, when none is named), or a report of another tool.

    ``ranks`` is called if a report does not say how many ran; without it such a file is refused.
    ``collective`` is assumed for files that name no collective. Raises DataError, MissingInputError.
    """
    return _decoded(*read_input(path), kinds, ranks, collective)


@dataclass(frozen=True)
class ForeignFiles:
    """The inflated contents of files by name; ``source`` names them all in messages.

    ``single`` tells whether one file was named, or stdin, and not a folder.
    """

    source: str
    contents: Mapping[str, bytes]
    single: bool


def read_files(paths: Sequence[str]) -> ForeignFiles:
    """Return files, the files of folders, and stdin (-), each read once, because a pipe is then empty.

    Raises MissingInputError, DataError.
    """
    contents: dict[str, bytes] = {}
    for path in paths:
        names = [path]
        if path != "-" and is_folder(path):
            names = sorted(str(one) for one in Path(path).iterdir() if one.is_file())
        for name in names:
            content, source = read_input(name)
            contents[source] = inflated(content, source)
    first = "stdin" if paths[0] == "-" else paths[0]
    single = len(paths) == 1 and (paths[0] == "-" or not is_folder(paths[0]))
    return ForeignFiles(some([first, *paths[1:]], 1), contents, single)


def recorded_in(
    files: ForeignFiles, ranks: Callable[[], int] | None, collective: Kind | None = None
) -> tuple[Report, Inspected | None]:
    """Return (the report, all that NCCL's Inspector recorded; None for other files).

    ``ranks`` and ``collective`` mean the same as in `read_any`. Raises the errors of `read_any`, and
    DataError for several files of which none is the Inspector's.
    """
    from exec.benchmark.foreign import inspected, is_inspector_text

    records = {name: content for name, content in files.contents.items() if is_inspector_text(content)}
    if records:
        _tell_left_out(files, records, "NCCL's Inspector")
        found = inspected(records)
        return found.report, found
    if not files.single:
        names = some([Path(name).name for name in files.contents], _MOST_NAMED) or "no file"
        raise DataError(
            files.source,
            [
                "expected files of NCCL's Inspector, its RAS or PyTorch's flight recorder, logs of NCCL or "
                f"checks of hosts, found none of these: {names}"
            ],
            hint="What benchmarks printed is explained one file at a time: ccctl explain FOLDER/FILE",
        )
    [(source, content)] = files.contents.items()
    return _decoded(content, source, ("report",), ranks, collective).body, None


# (late ranks and timed sends, timed collectives or None where none was timed)
Dumps: TypeAlias = "tuple[Recorded, Inspected | None]"


def dumps_in(files: ForeignFiles) -> Dumps | None:
    """Return the dumps of NCCL's RAS or PyTorch's flight recorder among files; None where there are none.

    Raises DataError for a dump that cannot be read.
    """
    from exec.benchmark.foreign import (
        as_timed_calls,
        flight_calls,
        flight_recorded,
        is_flight_pickle,
        is_flight_text,
        is_ras,
        of_calls,
        ras_recorded,
    )

    contents = files.contents
    if ras := {name: content for name, content in contents.items() if is_ras(content)}:
        _tell_left_out(files, ras, "NCCL's RAS")
        return ras_recorded(ras), None
    flight = {
        name: content
        for name, content in contents.items()
        if is_flight_pickle(content) or is_flight_text(content)
    }
    if flight:
        _tell_left_out(files, flight, "PyTorch's flight recorder")
        return flight_recorded(flight), of_calls(as_timed_calls(flight_calls(flight)), "flight-recorder")
    return None


def evidence_in(files: ForeignFiles) -> dict[str, bytes]:
    """Return the contents of checks, diagnostics and logs of NCCL among files, by name.

    Return none if the files hold a benchmark or NCCL's Inspector, which are judged by their rows.
    """
    from exec.acceptance import is_evidence
    from exec.benchmark.foreign import is_inspector_text

    contents = files.contents
    if any(map(is_inspector_text, contents.values())):
        return {}
    if files.single and any(_parser(content) for content in contents.values()):
        return {}
    found = {name: content for name, content in contents.items() if is_evidence(content)}
    if found:
        _tell_left_out(files, found, "a tool that is read here")
    return found


def schedule_in(files: ForeignFiles) -> Artifact | None:
    """Return the schedule if it is the only file; None for other files.

    Raises DataError for a broken schedule, and UsageError for a program or selection.
    """
    if not files.single:
        return None
    [(source, content)] = files.contents.items()
    named = _SCHEDULE.search(content)
    if named is None:
        return None
    if (kind := named[1].decode()) in ("selection", "program"):
        raise UsageError(
            f"{source}: expected a report or the schedule of one size, found a {kind}",
            hint=f"ccctl simulate {source} times it and says what limits it.",
        )
    return codec.decode(content, source, *codec.SCHEDULE_KINDS)


def logs_in(files: ForeignFiles) -> dict[str, bytes]:
    """Return the contents with lines of NCCL's log, by name."""
    from exec.benchmark.foreign import is_nccl_debug

    return {name: content for name, content in files.contents.items() if is_nccl_debug(content)}


def sent_in(files: ForeignFiles) -> tuple[SentMessages, str]:
    """Return (messages between two ranks that NCCL's Inspector timed, the Inspector's name)."""
    from exec.benchmark.foreign import SentMessages, is_inspector_text, sends_of

    records = {name: content for name, content in files.contents.items() if is_inspector_text(content)}
    return SentMessages(*sends_of(records)), "NCCL Inspector"


def _tell_left_out(files: ForeignFiles, read: Mapping[str, bytes], tool: str) -> None:
    """Name the files that a tool did not write."""
    if left := [Path(name).name for name in files.contents if name not in read]:
        are = "is" if len(left) == 1 else "are"
        console.note(f"{files.source}: {some(left, _MOST_NAMED)} {are} left out, not written by {tool}")


def _decoded(
    content: bytes,
    source: str,
    kinds: tuple[str, ...],
    ranks: Callable[[], int] | None,
    collective: Kind | None,
) -> Artifact:
    if parse := _parser(content):
        report = parse(source, ranks, collective)
        return Artifact("report", report, source, hashlib.sha256(content).hexdigest())
    if kinds == ("report",) and content.strip() and not content.lstrip().startswith(_ARTIFACT_BEGINS):
        raise DataError(
            source,
            [
                "expected a report of ccctl, or what nccl-tests, rccl-tests, the OSU benchmarks or NCCL's "
                "Inspector wrote, found none of these"
            ],
            hint="The topology of a machine? Read it with ccctl detect --from."
            if content.lstrip().startswith(b"<")
            else "Give all that they print: lines that begin with # name the columns.",
        )
    return codec.decode(content, source, *kinds)


def is_log(path: str) -> bool:
    """Return whether a benchmark of another tool wrote a file, whole or not."""
    return _parser(read_input(path)[0]) is not None


def _parser(
    content: bytes,
) -> Callable[[str, Callable[[], int] | None, Kind | None], Report] | None:
    """Return how to read what a benchmark of another tool wrote; None where none did."""
    from exec.benchmark.foreign import (
        is_nccl_json,
        is_nccl_text,
        is_osu_text,
        is_rccl_lines,
        parse_nccl_json,
        parse_nccl_text,
        parse_osu_text,
        parse_rccl_lines,
    )

    if len(content) > MOST_TEXT_BYTES or content[:2] == _GZIP:
        return None
    start = content.lstrip()
    document = _json(content) if start[:1] == b"{" and b'"nccl_version"' in content else None
    if document is not None and is_nccl_json(document):
        return lambda source, ranks, kind: parse_nccl_json(document, source, kind)
    text = content.decode(errors="replace")
    if b'"busBw"' in content and is_rccl_lines(text):
        return lambda source, ranks, kind: parse_rccl_lines(text, source, ranks)
    if b"# OSU " in content and is_osu_text(text):
        return lambda source, ranks, kind: parse_osu_text(text, source, ranks)
    if not start.startswith(_ARTIFACT_BEGINS) and is_nccl_text(text):
        return lambda source, ranks, kind: parse_nccl_text(text, source, ranks, kind)
    return None


def _json(content: bytes) -> Any:
    """Return a JSON document; None where it is none."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None
