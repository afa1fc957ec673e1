"""`ccctl schema`: the JSON Schema of each artifact."""

from __future__ import annotations

from typing import Annotated

import typer

from ccctl import console
from ccctl.arguments import refuse_unknown
from ccctl.artifacts import codec

__all__ = ["EXAMPLES", "schema"]

EXAMPLES = (
    ("ccctl schema", "list the kinds of artifact and their versions"),
    ("ccctl schema profile", "print the JSON Schema of a profile"),
)


def _kinds(incomplete: str) -> list[str]:
    return [kind for kind in codec.KINDS if kind.startswith(incomplete)]


def schema(
    kind: Annotated[
        str | None, typer.Argument(metavar="KIND", autocompletion=_kinds, help="The kind of artifact.")
    ] = None,
) -> None:
    """Print the JSON Schema of a kind of artifact, or list kinds.

    Readers ignore fields they do not know, so the schema allows them too.
    """
    if kind is None:
        rows = [(name, major, f"ccctl schema {name}") for name, (_, major) in codec.KINDS.items()]
        console.table(("kind", "version", "its schema"), rows)
        return
    refuse_unknown("KIND", kind, codec.KINDS)
    from ccctl.artifacts import json_schema

    console.summary(json_schema.schema(kind))
