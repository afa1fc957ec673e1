"""Execution traces of MLCommons Chakra (schema 0.0.4), one file for each rank, as ASTRA-sim reads and writes.

A file is a sequence of length-prefixed messages: the metadata, then the nodes. A send matches its receive by
tag, source, destination and size. The needed part of the schema (et_def.proto) is built at run time, so that
only the `protobuf` package is needed: mlc-chakra has the whole schema, but its tools depend on a hundred
packages.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from io import BytesIO
from typing import Any, NamedTuple

from probes.base import UnavailableError, UsageError, install
from synth.collective import Kind
from synth.traces.operations import ADD, RECV, SEND, TraceOperation

__all__ = [
    "BARRIER",
    "COLLECTIVES",
    "TraceNode",
    "chakra_trace",
    "collective_trace",
    "messages",
    "trace_nodes",
]

_VERSION = "0.0.4"
# Values of NodeType in Chakra's et_def.proto: COMP_NODE, COMM_SEND_NODE, COMM_RECV_NODE and COMM_COLL_NODE.
_TYPE = {ADD: 4, SEND: 5, RECV: 6}
_METADATA_NODE, _COLLECTIVE_NODE = 1, 7
# Values of CollectiveCommType; BARRIER moves no data.
COLLECTIVES: dict[int, Kind] = {
    0: "all_reduce",
    1: "reduce",
    2: "all_gather",
    3: "gather",
    4: "scatter",
    5: "broadcast",
    6: "all_to_all",
    7: "reduce_scatter",
    8: "reduce_scatter",
}
BARRIER = 9
# Fields of Chakra's messages that may occur several times.
_REPEATED = ("attr", "ctrl_deps", "data_deps")


class TraceNode(NamedTuple):
    """A node of a rank's trace: a computation of ``seconds``, or communication described by ``values``.

    ``kind`` is "send", "recv", "collective", or "" for a computation. The node waits for those whose numbers
    are in ``after``. ``groups`` are the ranks of process groups by name, which PyTorch's traces list.
    """

    number: int
    name: str
    kind: str
    after: tuple[int, ...]
    seconds: float
    values: dict[str, Any]
    groups: dict[str, tuple[int, ...]]


def chakra_trace(operations: Sequence[TraceOperation]) -> bytes:
    """Return the trace of one rank; an add takes whole microseconds (ASTRA-sim reads 0 as 1 ns).

    Raises UnavailableError if `protobuf` is not installed.
    """
    made = messages()
    nodes = [made.metadata(version=_VERSION)]
    for at, operation in enumerate(operations):
        node = made.node(
            id=at, name=_name(operation, at), type=_TYPE[operation.kind], data_deps=operation.after
        )
        if operation.kind == ADD:
            node.duration_micros = round(operation.seconds * 1e6)
        else:
            end = "comm_dst" if operation.kind == SEND else "comm_src"
            node.attr.add(name="comm_type", int64_val=_TYPE[operation.kind])
            node.attr.add(name="comm_size", int64_val=operation.size_bytes)
            node.attr.add(name=end, int32_val=operation.peer)
            node.attr.add(name="comm_tag", int32_val=operation.tag)
        node.attr.add(name="is_cpu_op", bool_val=False)
        nodes.append(node)
    return _delimited(nodes)


def collective_trace(kind: Kind, size_bytes: int) -> bytes:
    """Return the trace of one rank with a single collective."""
    made = messages()
    node = made.node(id=0, name=kind, type=_COLLECTIVE_NODE)
    number = next(number for number, one in COLLECTIVES.items() if one == kind)
    node.attr.add(name="is_cpu_op", bool_val=False)
    node.attr.add(name="comm_type", int64_val=number)
    node.attr.add(name="comm_size", int64_val=size_bytes)
    return _delimited([made.metadata(version=_VERSION), node])


def trace_nodes(content: bytes) -> list[TraceNode]:
    """Return the nodes of one rank's trace; raise UsageError if the bytes are no such trace."""
    made = messages()
    from google.protobuf.message import DecodeError
    from google.protobuf.proto import parse_length_prefixed

    file, found = BytesIO(content), []
    kinds = {_TYPE[SEND]: SEND, _TYPE[RECV]: RECV, _COLLECTIVE_NODE: "collective"}
    try:
        if parse_length_prefixed(made.metadata, file) is None:
            raise UsageError("expected a Chakra trace, found an empty file")
        while (node := parse_length_prefixed(made.node, file)) is not None:
            values = {one.name: getattr(one, way) for one in node.attr if (way := one.WhichOneof("value"))}
            groups = _process_groups(node.inputs.values) if node.type == _METADATA_NODE else {}
            after = (*node.data_deps, *node.ctrl_deps)
            kind, seconds = kinds.get(node.type, ""), node.duration_micros / 1e6
            found.append(TraceNode(node.id, node.name, kind, after, seconds, values, groups))
    except (DecodeError, ValueError) as error:
        raise UsageError(f"expected a Chakra trace after {len(found)} nodes ({error})") from error
    return found


def _process_groups(text: str) -> dict[str, tuple[int, ...]]:
    """Return the ranks of process groups as PyTorch records them at their start; {} for other inputs."""
    begin, end = text.find("[{"), text.rfind("}]")
    try:
        listed = json.loads(text[begin : end + 2]) if 0 <= begin < end else []
        return {str(one["pg_name"]): tuple(map(int, one["ranks"])) for one in listed}
    except (KeyError, TypeError, ValueError):
        return {}


def _name(operation: TraceOperation, at: int) -> str:
    if operation.kind == ADD:
        return f"add {at}"
    way = "from" if operation.kind == RECV else "to"
    return f"{operation.kind} {way} {operation.peer}, {operation.tag}"


def _delimited(nodes: Sequence[Any]) -> bytes:
    from google.protobuf.proto import serialize_length_prefixed

    file = BytesIO()
    for node in nodes:
        serialize_length_prefixed(node, file)
    return file.getvalue()


class ChakraClasses(NamedTuple):
    """The classes of Chakra's messages."""

    metadata: Any
    node: Any


@cache
def messages() -> ChakraClasses:
    """Return the classes of Chakra's messages; raise UnavailableError if `protobuf` is not installed."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError as error:
        raise UnavailableError("Chakra traces need protobuf", hint=install("chakra")) from error
    proto = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="ccctl/et_def_part.proto", package="ChakraProtoMsg", syntax="proto3"
    )

    def message(name: str, *fields: tuple[int, str, Any], one_of: str = "") -> None:
        """Define a message; a field whose type is a name is a message of that name."""
        made = file.message_type.add(name=name)
        if one_of:
            made.oneof_decl.add(name=one_of)
        for number, field, kind in fields:
            label = proto.LABEL_REPEATED if field in _REPEATED else proto.LABEL_OPTIONAL
            added = made.field.add(name=field, number=number, label=label)
            if isinstance(kind, str):
                added.type, added.type_name = proto.TYPE_MESSAGE, f".ChakraProtoMsg.{kind}"
            else:
                added.type = kind
            if one_of and field.endswith("_val"):
                added.oneof_index = 0

    message(
        "AttributeProto",
        (1, "name", proto.TYPE_STRING),
        (7, "int32_val", proto.TYPE_INT32),
        (9, "int64_val", proto.TYPE_INT64),
        (11, "uint32_val", proto.TYPE_UINT32),
        (13, "uint64_val", proto.TYPE_UINT64),
        (27, "bool_val", proto.TYPE_BOOL),
        (29, "string_val", proto.TYPE_STRING),
        one_of="value",
    )
    message("GlobalMetadata", (1, "version", proto.TYPE_STRING), (2, "attr", "AttributeProto"))
    message("IOInfo", (1, "values", proto.TYPE_STRING))
    # The schema's type is an enum, which is an int32 on the wire.
    message(
        "Node",
        (1, "id", proto.TYPE_UINT64),
        (2, "name", proto.TYPE_STRING),
        (3, "type", proto.TYPE_INT32),
        (4, "ctrl_deps", proto.TYPE_UINT64),
        (5, "data_deps", proto.TYPE_UINT64),
        (7, "duration_micros", proto.TYPE_UINT64),
        (8, "inputs", "IOInfo"),
        (10, "attr", "AttributeProto"),
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    classes = [
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"ChakraProtoMsg.{name}"))
        for name in ("GlobalMetadata", "Node")
    ]
    return ChakraClasses(*classes)
