"""Reports from files: our artifact, or what nccl-tests wrote as text or JSON."""

from __future__ import annotations

import hashlib
import json

from ccctl.artifacts import codec
from ccctl.artifacts.codec import Artifact
from ccctl.artifacts.files import read_input
from probes.files.bounded_read import MOST_TEXT_BYTES

__all__ = ["read_any", "read_report"]


def read_report(path: str) -> Artifact:
    """The report in a file ("-": stdin), whoever wrote it; raises DataError, MissingInputError."""
    return read_any(path, "report")


def read_any(path: str, *kinds: str) -> Artifact:
    """An artifact of one of ``kinds`` (any, when none is named), or a report of another tool."""
    content, source = read_input(path)
    foreign = _foreign(content, source)
    return foreign or codec.decode(content, source, *kinds)


def _foreign(content: bytes, source: str) -> Artifact | None:
    from exec.benchmark.nccl_tests import is_nccl_json, is_nccl_text, parse_nccl_json, parse_nccl_text

    if len(content) > MOST_TEXT_BYTES:
        return None
    digest = hashlib.sha256(content).hexdigest()
    if content.lstrip()[:1] == b"{" and b'"nccl_version"' in content:
        try:
            document = json.loads(content)
        except (ValueError, RecursionError):
            return None
        if is_nccl_json(document):
            return Artifact("report", parse_nccl_json(document, source), source, digest)
    if b"algbw" in content[:65536]:
        text = content.decode(errors="replace")
        if is_nccl_text(text):
            return Artifact("report", parse_nccl_text(text, source), source, digest)
    return None
