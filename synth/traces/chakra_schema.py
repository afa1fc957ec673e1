"""The part of MLCommons Chakra's schema (et_def.proto, schema 0.0.4) that traces of schedules use.

Built at run time from numbers and types, so that the `protobuf` package is all it needs: mlc-chakra has the
whole of it, and brings tools along that depend on a hundred packages.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from probes.errors import UnavailableError
from probes.install_hints import install

__all__ = ["Messages", "messages"]


class Messages(NamedTuple):
    """The classes of the messages."""

    metadata: Any
    node: Any


@cache
def messages() -> Messages:
    """Raises UnavailableError where `protobuf` is not installed."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError as error:
        raise UnavailableError("Chakra traces need protobuf", hint=install("chakra")) from error
    of = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="ccctl/et_def_part.proto", package="ChakraProtoMsg", syntax="proto3"
    )

    def message(name: str, *fields: tuple[int, str, Any], one_of: str = "") -> None:
        """A message; fields whose type is a name are messages, those whose name ends in s are repeated."""
        made = file.message_type.add(name=name)
        if one_of:
            made.oneof_decl.add(name=one_of)
        for number, field, kind in fields:
            label = of.LABEL_REPEATED if field in _REPEATED else of.LABEL_OPTIONAL
            added = made.field.add(name=field, number=number, label=label)
            if isinstance(kind, str):
                added.type, added.type_name = of.TYPE_MESSAGE, f".ChakraProtoMsg.{kind}"
            else:
                added.type = kind
            if one_of and field.endswith("_val"):
                added.oneof_index = 0

    message(
        "AttributeProto",
        (1, "name", of.TYPE_STRING),
        (7, "int32_val", of.TYPE_INT32),
        (9, "int64_val", of.TYPE_INT64),
        (27, "bool_val", of.TYPE_BOOL),
        (29, "string_val", of.TYPE_STRING),
        one_of="value",
    )
    message("GlobalMetadata", (1, "version", of.TYPE_STRING), (2, "attr", "AttributeProto"))
    # The type is an enum there; on the wire that is an int32.
    message(
        "Node",
        (1, "id", of.TYPE_UINT64),
        (2, "name", of.TYPE_STRING),
        (3, "type", of.TYPE_INT32),
        (5, "data_deps", of.TYPE_UINT64),
        (7, "duration_micros", of.TYPE_UINT64),
        (10, "attr", "AttributeProto"),
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    classes = [
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"ChakraProtoMsg.{name}"))
        for name in ("GlobalMetadata", "Node")
    ]
    return Messages(*classes)


_REPEATED = ("attr", "data_deps")
