"""The one codec of the artifacts: JSON in an envelope, read whole or refused whole, written atomically.

A reader ignores fields it does not know, refuses another major version, and reports every problem
of a file at once, each with its path.
"""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import importlib
import os
import socket
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from ccctl import __version__
from ccctl.errors import CannotWriteError, DataError, MissingInputError

__all__ = ["KINDS", "Artifact", "body_type", "decode", "encode", "read", "schema", "write"]

KINDS: dict[str, tuple[str, int]] = {
    "topology": ("probes.topology:Topology", 1),
    "profile": ("probes.profile:Profile", 1),
    "schedule": ("synth.schedule:Schedule", 1),
    "program": ("synth.program:Program", 1),
    "report": ("exec.report:Report", 1),
}
_MOST_PROBLEMS = 20


@dataclass(frozen=True)
class Artifact:
    """One artifact as it was read: its kind, its value, where it came from, the digest of its bytes."""

    kind: str
    body: Any
    source: str
    sha256: str


def body_type(kind: str) -> type:
    """The dataclass of a kind, imported only now."""
    module, _, name = KINDS[kind][0].partition(":")
    found: type = getattr(importlib.import_module(module), name)
    return found


def encode(kind: str, body: object, inputs: Mapping[str, str] | None = None) -> bytes:
    """The envelope and body as indented JSON with sorted keys and a trailing newline."""
    import msgspec

    envelope = {
        "schema": f"ccctl/{kind}/{KINDS[kind][1]}",
        "created": _now(),
        "tool": f"ccctl {__version__}",
        "host": socket.gethostname(),
        "inputs": dict(inputs or {}),
        "body": body,
    }
    raw = msgspec.json.encode(envelope, enc_hook=_to_plain, order="sorted")
    return _indent(raw) + b"\n"


def write(path: str, kind: str, body: object, inputs: Mapping[str, str] | None = None) -> None:
    """Write an artifact to ``path`` ("-" is stdout, ``.gz`` compresses); all of it or nothing."""
    content = encode(kind, body, inputs)
    if path == "-":
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    write_atomically(Path(path), gzip.compress(content, mtime=0) if path.endswith(".gz") else content)


def write_atomically(path: Path, content: bytes) -> None:
    """Replace ``path`` by ``content`` so that a reader, or a kill, never sees a part of it."""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise CannotWriteError(f"{path}: {error.strerror}") from error
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).chmod(0o666 & ~_umask())
        Path(temporary).replace(path)
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        raise CannotWriteError(f"{path}: {error.strerror}") from error
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def read(path: str, *kinds: str) -> Artifact:
    """Read an artifact of one of ``kinds`` (any, when none is named); "-" is stdin."""
    if path == "-":
        return decode(sys.stdin.buffer.read(), "stdin", *kinds)
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError as error:
        raise MissingInputError(f"{path}: there is no such file") from error
    except OSError as error:
        raise MissingInputError(f"{path}: {error.strerror}") from error
    return decode(content, path, *kinds)


def decode(content: bytes, source: str, *kinds: str) -> Artifact:
    """An artifact from its bytes; raises DataError with every problem found."""
    import msgspec

    digest = hashlib.sha256(content).hexdigest()
    if content[:2] == b"\x1f\x8b":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError) as error:
            raise DataError(source, [f"not a whole gzip file: {error}"]) from error
    if not content.strip():
        raise DataError(source, ["the file is empty"])
    try:
        document = msgspec.json.decode(content)
    except msgspec.DecodeError as error:
        raise DataError(source, [f"not JSON: {error}"], hint="Was it cut off?") from error
    kind = _kind_of(document, source, kinds)
    if "body" not in document:
        raise DataError(source, ["body: missing"])
    body = _build(document["body"], body_type(kind), source)
    return Artifact(kind=kind, body=body, source=source, sha256=digest)


def schema(kind: str) -> dict[str, Any]:
    """The JSON Schema of an artifact's file, envelope included."""
    import msgspec

    (body,), components = msgspec.json.schema_components(
        [body_type(kind)], schema_hook=_column_schema, ref_template="#/$defs/{name}"
    )
    text = {"type": "string"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"ccctl {kind}",
        "type": "object",
        "required": ["schema", "body"],
        "properties": {
            "schema": {"const": f"ccctl/{kind}/{KINDS[kind][1]}"},
            "created": {"type": "string", "format": "date-time"},
            "tool": text,
            "host": text,
            "inputs": {"type": "object", "additionalProperties": text},
            "body": body,
        },
        "$defs": components,
    }


def _kind_of(document: object, source: str, kinds: tuple[str, ...]) -> str:
    label = document.get("schema") if isinstance(document, dict) else None
    if not isinstance(label, str) or label.count("/") != 2 or not label.startswith("ccctl/"):
        raise DataError(source, ["schema: not a ccctl artifact (expected ccctl/<kind>/<major>)"])
    _, kind, major = label.split("/")
    if kind not in KINDS:
        raise DataError(source, [f"schema: unknown kind {kind!r}; known are {', '.join(KINDS)}"])
    if kinds and kind not in kinds:
        raise DataError(source, [f"expected a {' or '.join(kinds)}, found a {kind}"])
    if major != str(KINDS[kind][1]):
        raise DataError(
            source,
            [f"schema: this ccctl reads {kind} version {KINDS[kind][1]}, the file is version {major}"],
            hint="Use the ccctl that wrote it, or make the artifact again.",
        )
    return kind


def _build(document: object, cls: type, source: str) -> Any:
    problems = _type_problems(document, cls, "body")
    if not problems:
        import msgspec

        body: Any = msgspec.convert(document, cls, dec_hook=_from_plain)
        check = getattr(body, "problems", None)
        problems = [f"body.{problem}" for problem in check()] if check else []
        if not problems:
            return body
    more = len(problems) - _MOST_PROBLEMS
    listed = problems[:_MOST_PROBLEMS] + ([f"… and {more} more problems"] if more > 0 else [])
    raise DataError(source, listed)


def _type_problems(value: object, expected: Any, path: str) -> list[str]:
    """Every place where ``value`` is not of the expected type; descends only where something is wrong."""
    import msgspec

    try:
        msgspec.convert(value, expected, dec_hook=_from_plain)
    except msgspec.ValidationError as error:
        inner = _inner_problems(value, expected, path)
        return inner or [f"{path}: {_without_path(str(error))}"]
    return []


def _inner_problems(value: object, expected: Any, path: str) -> list[str]:
    if dataclasses.is_dataclass(expected) and isinstance(expected, type) and isinstance(value, dict):
        hints = get_type_hints(expected)
        found = []
        for field in dataclasses.fields(expected):
            if field.name in value:
                found += _type_problems(value[field.name], hints[field.name], f"{path}.{field.name}")
            elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
                found.append(f"{path}.{field.name}: missing")
        return found
    if get_origin(expected) in (tuple, list) and isinstance(value, list):
        item = get_args(expected)[0]
        found = []
        for index, entry in enumerate(value):
            found += _type_problems(entry, item, f"{path}[{index}]")
            if len(found) > _MOST_PROBLEMS:
                break
        return found
    if _is_column(expected) and isinstance(value, list):
        number: Any = float if _dtype(expected).kind == "f" else int
        return [p for i, entry in enumerate(value) for p in _type_problems(entry, number, f"{path}[{i}]")]
    return []


def _without_path(text: str) -> str:
    return text.split(" - at `$")[0]


def _is_column(expected: Any) -> bool:
    import numpy as np

    return get_origin(expected) is np.ndarray


def _dtype(column: Any) -> Any:
    import numpy as np

    return np.dtype(get_args(get_args(column)[1])[0])


def _to_plain(value: object) -> object:
    import numpy as np

    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"cannot encode {type(value)}")


def _from_plain(expected: Any, value: object) -> object:
    import numpy as np

    if not _is_column(expected):
        raise TypeError(f"cannot decode {expected}")
    dtype = _dtype(expected)
    if not isinstance(value, list):
        raise ValueError(f"Expected `array`, got `{type(value).__name__}`")
    allowed = (int, float) if dtype.kind == "f" else (int,)
    if any(type(entry) not in allowed for entry in value):
        raise ValueError(f"Expected an array of {'numbers' if dtype.kind == 'f' else 'integers'}")
    column = np.array(value, dtype=dtype)
    column.setflags(write=False)
    return column


def _column_schema(column: Any) -> dict[str, Any]:
    kind: Literal["number", "integer"] = "number" if _dtype(column).kind == "f" else "integer"
    return {"type": "array", "items": {"type": kind}}


def _indent(raw: bytes) -> bytes:
    """Indent objects, but keep each array of numbers on one line: columns stay diffable and small."""
    import msgspec

    if len(raw) > 4_000_000:
        return raw
    return msgspec.json.format(raw, indent=1)


def _now() -> str:
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    moment = datetime.fromtimestamp(int(epoch), UTC) if epoch else datetime.now(UTC)
    return moment.isoformat(timespec="seconds")


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
