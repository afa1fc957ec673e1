"""The codec of all artifacts: JSON in an envelope, read whole or not at all, written atomically.

A reader ignores fields it does not know, refuses another major version, and reports every problem
of a file at once, each with its path.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib
import os
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ccctl import __version__
from ccctl.artifacts.atomic import write_output
from ccctl.artifacts.files import read_input
from ccctl.errors import DataError
from probes.base import LARGEST, unsteered_json
from probes.files import inflated
from synth.schedules import SCHEDULE_KINDS

__all__ = [
    "KINDS",
    "SCHEDULE_KINDS",
    "Artifact",
    "body_type",
    "created",
    "decode",
    "encode",
    "kind_of",
    "load",
    "read",
    "save",
    "write",
]

KINDS: dict[str, tuple[str, int]] = {
    "topology": ("probes.topology:Topology", 1),
    "profile": ("probes.link_costs:Profile", 1),
    "samples": ("probes.profiling.raw_samples:RawSamples", 1),
    "health": ("probes.health.model:ClusterHealth", 1),
    **{kind: (home, 1) for kind, home in SCHEDULE_KINDS.items()},
    "program": ("synth.program:Program", 1),
    "report": ("exec.benchmark.report:Report", 1),
    "history": ("probes.profiling.history:History", 1),
    "model": ("synth.fusion.model:Model", 1),
    "fusion": ("synth.fusion.plan:FusionPlan", 1),
    "groups": ("synth.groups.artifact:Groups", 1),
    "tuning": ("synth.fusion.tuning:Tuning", 1),
    "training": ("exec.training.workloads.report:TrainingReport", 1),
    "certificate": ("exec.acceptance.certificate:Certificate", 1),
}
# Upper limits of the bytes of Python objects for each of these characters in the JSON text. An empty list
# takes 64 bytes, a number 40, an object with one key 360. _MOST_OBJECT_BYTES limits the sum over a document.
_BYTES_OF = {b",": 40, b"[": 72, b"{": 240, b":": 120}
_MOST_OBJECT_BYTES = 3 << 29
_LONG_NUMBER = re.compile(rb"[\[:,\s]-?[0-9]{19}")


@dataclass(frozen=True)
class Artifact:
    """One artifact as it was read: its kind, its value, where it came from, the digest of its bytes."""

    kind: str
    body: Any
    source: str
    sha256: str


def body_type(kind: str) -> type:
    """Import and return the dataclass of a kind."""
    module, _, name = KINDS[kind][0].partition(":")
    found: type = getattr(importlib.import_module(module), name)
    return found


def encode(kind: str, body: object, inputs: Mapping[str, str] | None = None) -> bytes:
    """Return the envelope and body as indented JSON; ``inputs`` maps the name of each input to its sha256.

    With SOURCE_DATE_EPOCH in the environment, "created" is that moment.
    """
    import msgspec

    from ccctl.artifacts.arrays import to_plain
    from ccctl.artifacts.json_text import render

    envelope = {
        "schema": f"ccctl/{kind}/{KINDS[kind][1]}",
        "created": created(),
        "tool": f"ccctl {__version__}",
        "host": socket.gethostname(),
        "inputs": dict(inputs or {}),
        "body": body,
    }
    content = render(msgspec.to_builtins(envelope, enc_hook=to_plain))
    # On stdout the content must not control a terminal.
    plain = content.isascii() and b"\x7f" not in content
    return content if plain else unsteered_json(content.decode()).encode()


def write(path: str, kind: str, body: object, inputs: Mapping[str, str] | None = None) -> None:
    """Write an artifact to ``path`` ("-" is stdout, ``.gz`` compresses); all of it or nothing.

    A program is written as MSCCL XML to a path that ends in ``.xml`` or ``.xml.gz``.
    """
    as_xml = kind == "program" and path.removesuffix(".gz").endswith(".xml")
    content = _xml(body) if as_xml else encode(kind, body, inputs)
    write_output(path, gzip.compress(content, mtime=0) if path.endswith(".gz") else content)


def read(path: str, *kinds: str) -> Artifact:
    """Read an artifact of one of ``kinds`` (any, when none is named); "-" is stdin.

    If ``kinds`` include "plan", the input may also be an execution plan of MSCCL++, which has no envelope.
    """
    return decode(*read_input(path), *kinds)


def decode(content: bytes, source: str, *kinds: str) -> Artifact:
    """Return an artifact from its bytes; raises DataError with every problem found."""
    digest = hashlib.sha256(content).hexdigest()
    plain = inflated(content, source)
    # Skip a byte order mark at the beginning, and the zero byte that UTF-16 adds to each letter.
    start = plain[:128].replace(b"\0", b"").lstrip(b"\xef\xbb\xbf\xff\xfe \t\r\n")
    if start.startswith(b"<") and (not kinds or "program" in kinds):
        from synth.msccl import read_xml

        return Artifact("program", read_xml(plain, source), source, digest)
    document = _document(plain, source)
    if "plan" in kinds:
        from synth.mscclpp import is_plan, read_plan

        if is_plan(document):
            return Artifact("plan", read_plan(document, source), source, digest)
    kind = _kind_of(document, source, kinds)
    if "body" not in document:
        raise DataError(source, ["body: missing"])
    long_numbers = _long_numbers(document["body"], "body") if _LONG_NUMBER.search(plain) else ()
    return Artifact(kind, _body(document["body"], body_type(kind), source, long_numbers), source, digest)


def load(path: str | os.PathLike[str], *kinds: str) -> Any:
    """Return the value in an artifact: a Topology, a Profile, a Schedule or another kind's.

    ``kinds`` are the accepted kinds, for instance "profile"; by default all are. MSCCL XML is read as a
    program, and gzip data are decompressed, whatever the file's name. Raises MissingInputError, or DataError
    with every problem of the file.

    >>> import ccctl, tempfile
    >>> from synth import family, synthesize
    >>> found = synthesize(family("ring:4", [0.0], [1e9]), "all_gather", 1 << 20)
    >>> file = tempfile.NamedTemporaryFile(suffix=".json")
    >>> ccctl.save(file.name, found.schedule)
    >>> ccctl.load(file.name).sends == found.schedule.sends
    True
    """
    return read(os.fspath(path), *kinds).body


def save(path: str | os.PathLike[str], value: object) -> None:
    """Write the value of an artifact, such as a Topology or a Schedule: all of it or nothing.

    A name that ends in ``.gz`` is compressed, and a program whose name ends in ``.xml`` is MSCCL XML. Raises
    TypeError if the value is not one of an artifact, and CannotWriteError if the file cannot be made.

    >>> import ccctl
    >>> ccctl.save("notes.json", "a text")
    Traceback (most recent call last):
    TypeError: expected a value of an artifact, such as a Schedule, found a str
    """
    write(os.fspath(path), kind_of(value), value)


def kind_of(value: object) -> str:
    """Return the kind of artifact that a value is; raises TypeError for any other value."""
    home = f"{type(value).__module__}:{type(value).__qualname__}"
    kind = next((kind for kind, (name, _) in KINDS.items() if name == home), None)
    if kind is None:
        raise TypeError(
            f"expected a value of an artifact, such as a Schedule, found a {type(value).__name__}"
        )
    return kind


def _xml(body: Any) -> bytes:
    from synth.msccl import write_xml

    return write_xml(body)


def _document(content: bytes, source: str) -> Any:
    import msgspec

    if not content.strip():
        raise DataError(source, ["empty, expected an artifact"], hint="did the command that wrote it fail?")
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(source, ["expected JSON in UTF-8, found UTF-16"])
    if sum(content.count(mark) * size for mark, size in _BYTES_OF.items()) > _MOST_OBJECT_BYTES:
        raise DataError(source, [f"holds more values than fit into {_MOST_OBJECT_BYTES / (1 << 30):g} GiB"])
    try:
        return msgspec.json.decode(content)
    except RecursionError as error:
        raise DataError(source, ["nested too deep for an artifact"]) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        truncated = "truncated" in str(error)
        hint = "was it cut off?" if truncated else ""
        if not content.lstrip().startswith(b"{"):
            hint = "it is no file that ccctl wrote; ccctl explain reads logs of nccl-tests and NCCL"
        raise DataError(source, [f"expected JSON: {error}"], hint=hint) from error


def _long_numbers(value: object, path: str) -> Iterator[str]:
    """Yield the paths of integers that are too large for columns and calculations."""
    if isinstance(value, int) and abs(value) > LARGEST:
        yield path
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _long_numbers(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from _long_numbers(inner, f"{path}[{at}]")


def _kind_of(document: object, source: str, kinds: tuple[str, ...]) -> str:
    label = document.get("schema") if isinstance(document, dict) else None
    if not isinstance(label, str) or label.count("/") != 2 or not label.startswith("ccctl/"):
        if isinstance(document, dict) and {"gpus", "collective", "protocol"} <= document.keys():
            raise DataError(source, ["a plan of MSCCL++, not a file of ccctl"], hint="ccctl verify reads it.")
        raise DataError(source, ["schema: not a ccctl artifact (expected ccctl/<kind>/<major>)"])
    _, kind, major = label.split("/")
    if kind not in KINDS:
        raise DataError(source, [f"schema: unknown kind {kind[:40]!r}; known are {', '.join(KINDS)}"])
    if kinds and kind not in kinds:
        raise DataError(source, [f"schema: expected a {' or '.join(kinds)}, found a {kind}"])
    if major != str(KINDS[kind][1]):
        raise DataError(
            source,
            [f"schema: this ccctl reads {kind} version {KINDS[kind][1]}, the file is version {major[:40]}"],
            hint="use the ccctl that wrote it, or make the artifact again",
        )
    return kind


def _body(document: object, cls: type, source: str, long_numbers: Iterable[str]) -> Any:
    import msgspec

    from ccctl.artifacts.arrays import to_column
    from ccctl.artifacts.validation import ENOUGH, mismatches

    body: Any = None
    try:
        body = msgspec.convert(document, cls, dec_hook=to_column)
        problems = [f"{path}: expected a number of at most 63 bits" for path in long_numbers]
        if not problems and hasattr(cls, "problems"):
            problems = [f"body.{problem}" for problem in body.problems()]
        # Only a schedule under construction has no bounds. A written one needs them, as reports state its
        # time in percent of a bound.
        if not problems and not getattr(getattr(body, "outcome", None), "bounds", True):
            problems = ["body.outcome.bounds: expected one or more"]
    except msgspec.ValidationError:
        problems = mismatches(document, cls, "body")
    if not problems:
        return body
    rest = ["… and more problems"] if len(problems) > ENOUGH else []
    raise DataError(source, problems[:ENOUGH] + rest)


def created() -> str:
    """Return the time of SOURCE_DATE_EPOCH if it is set, else the present time, in artifacts' format."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    moment = datetime.fromtimestamp(int(epoch), UTC) if epoch else datetime.now(UTC)
    return moment.isoformat(timespec="seconds")
