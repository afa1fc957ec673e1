"""Reports from files: our artifact, or what nccl-tests, the OSU benchmarks or NCCL's Inspector wrote."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ccctl import console
from ccctl.artifacts import codec
from ccctl.artifacts.codec import Artifact
from ccctl.artifacts.files import is_file, is_folder, read_input
from ccctl.errors import DataError
from probes.base import some
from probes.files import MOST_TEXT_BYTES, inflated

if TYPE_CHECKING:
    from exec.benchmark import Report
    from exec.benchmark.foreign import Inspected, Recorded, SentMessages
    from synth.collective import Kind

__all__ = ["Dumps", "is_log", "read_any", "read_dumps", "read_recorded", "read_sent"]

# How an artifact begins: JSON, perhaps after a byte order mark, or gzip.
_GZIP = b"\x1f\x8b"
_ARTIFACT_BEGINS = (b"{", b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", _GZIP)
_MOST_NAMED = 4


def read_any(
    path: str, *kinds: str, ranks: Callable[[], int] | None = None, collective: Kind | None = None
) -> Artifact:
    """Return an artifact of one of ``kinds`` (any, when none is named), or a report of another tool.

    ``ranks`` is asked where a report does not say how many ran; without it such a file is refused.
    ``collective`` is assumed for files that do not name theirs. Raises DataError, MissingInputError.
    """
    return _decoded(*read_input(path), kinds, ranks, collective)


def read_recorded(
    path: str, ranks: Callable[[], int] | None, collective: Kind | None = None
) -> tuple[Report, Inspected | None]:
    """Return (the report, all that NCCL's Inspector recorded; None for other files).

    Raises what `read_any` raises, and DataError for a folder without the Inspector's files.
    """
    from exec.benchmark.foreign import inspected, is_inspector_text

    if path != "-" and is_folder(path):
        files = _files(path)
        records = {name: content for name, content in files.items() if is_inspector_text(content)}
        if not records:
            names = some([Path(name).name for name in files], _MOST_NAMED) or "no file"
            raise DataError(
                path,
                [
                    "expected files of NCCL's Inspector, its RAS or PyTorch's flight recorder, found none "
                    f"of these: {names}"
                ],
                hint="What benchmarks printed is explained one file at a time: ccctl explain FOLDER/FILE",
            )
        _tell_left_out(path, files, records, "NCCL's Inspector")
        told = inspected(records)
        return told.report, told
    # Once: what comes through a pipe is gone afterwards.
    content, source = read_input(path)
    if is_inspector_text(lines := inflated(content, source)):
        found = inspected({source: lines})
        return found.report, found
    return _decoded(content, source, ("report",), ranks, collective).body, None


# (late ranks and timed sends, timed collectives or None where none was timed)
Dumps: TypeAlias = "tuple[Recorded, Inspected | None]"


def read_dumps(path: str) -> Dumps | None:
    """Return the dumps of NCCL's RAS or PyTorch's flight recorder in a file or folder; None where
    there are none.

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

    # A pipe can be read only once.
    if path == "-" or not (is_folder(path) or is_file(path)):
        return None
    files = _files(path)
    if ras := {name: content for name, content in files.items() if is_ras(content)}:
        _tell_left_out(path, files, ras, "NCCL's RAS")
        return ras_recorded(ras), None
    flight = {
        name: content
        for name, content in files.items()
        if is_flight_pickle(content) or is_flight_text(content)
    }
    if flight:
        _tell_left_out(path, files, flight, "PyTorch's flight recorder")
        return flight_recorded(flight), of_calls(as_timed_calls(flight_calls(flight)), "flight-recorder")
    return None


def read_sent(path: str) -> tuple[SentMessages, str]:
    """Return (messages between two ranks that NCCL's Inspector timed, its name), of one file or a folder."""
    from exec.benchmark.foreign import SentMessages, is_inspector_text, sends_of

    records = {name: content for name, content in _files(path).items() if is_inspector_text(content)}
    return SentMessages(*sends_of(records)), "NCCL Inspector"


def _files(path: str) -> dict[str, bytes]:
    """Return the inflated content of a file, or of all files of a folder, by name."""
    names = [path]
    if is_folder(path):
        names = sorted(str(one) for one in Path(path).iterdir() if one.is_file())
    return {name: inflated(*read_input(name)) for name in names}


def _tell_left_out(path: str, files: Iterable[str], read: Mapping[str, bytes], tool: str) -> None:
    """Name the files of a folder that a tool did not write."""
    if left := [Path(name).name for name in files if name not in read]:
        are = "is" if len(left) == 1 else "are"
        console.note(f"{path}: {some(left, _MOST_NAMED)} {are} left out, not written by {tool}")


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
            hint="Give all that they print: lines that begin with # name the columns.",
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
