"""Execution traces of MLCommons Chakra (schema 0.0.4): one file for each rank, as ASTRA-sim reads them.

A file is a row of messages, each behind its length: the metadata, then the nodes. A send and its receive
find each other by tag, source, destination and size.
"""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import Any

from synth.traces.chakra_schema import messages
from synth.traces.operations import ADD, RECV, SEND, Operation

__all__ = ["chakra_trace", "collective_trace"]

_VERSION = "0.0.4"
_TYPE = {ADD: 4, SEND: 5, RECV: 6}
_COLLECTIVE_NODE = 7


def chakra_trace(operations: Sequence[Operation]) -> bytes:
    """The trace of one rank; an add is a computation of whole microseconds (0 is 1 ns to ASTRA-sim).

    Raises UnavailableError where `protobuf` is not installed.
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


def collective_trace(name: str, kind: int, size_bytes: int) -> bytes:
    """A workload of one rank: one collective of a kind as Chakra numbers them."""
    made = messages()
    node = made.node(id=0, name=name, type=_COLLECTIVE_NODE)
    node.attr.add(name="is_cpu_op", bool_val=False)
    node.attr.add(name="comm_type", int64_val=kind)
    node.attr.add(name="comm_size", int64_val=size_bytes)
    return _delimited([made.metadata(version=_VERSION), node])


def _name(operation: Operation, at: int) -> str:
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
