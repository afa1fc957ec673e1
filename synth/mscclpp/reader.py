"""Reads a plan from JSON of MSCCL++; required fields and defaults are those of the library's parser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from probes.base import DataError, gc_paused
from synth.mscclpp.plan import (
    BUFFERS,
    CHANNEL_TYPES,
    OPERATIONS,
    ExecutionPlan,
    Operand,
    Operation,
    PlanRank,
    RemoteBuffer,
    Switch,
    Threadblock,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["is_plan", "read_plan"]

# The library stores numbers in 32 bits; the two limits below bound the memory that judging needs.
_MOST = (1 << 32) - 1
_MOST_CHUNKS = 1 << 20
_MOST_RANKS = 1 << 12
_SIZES = ("input_chunks", "output_chunks", "scratch_chunks")


def is_plan(document: object) -> bool:
    """Return whether a JSON document is an execution plan, of this format or the one of 0.7 and before."""
    return isinstance(document, dict) and "schema" not in document and "gpus" in document


@gc_paused()
def read_plan(document: object, source: str) -> ExecutionPlan:
    """Return the plan that a JSON document describes.

    Raises DataError with the place and reason of every problem.
    """
    reading = _Reading()
    plan = reading.plan(document)
    if reading.problems:
        raise DataError(source, reading.problems, hint="is it a plan of MSCCL++ 0.8 or later?")
    return plan


class _Reading:
    """Reads values; notes each problem, and returns a harmless value in place of a bad one."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def plan(self, document: object) -> ExecutionPlan:
        top = self.mapping(document, "plan")
        if any("inputChunks" in gpu for gpu in _objects(top.get("gpus"))):
            self.problems.append("gpus: this is the format of MSCCL++ 0.7 and before, which is not read")
            return ExecutionPlan("", "", "", False, ())
        gpus = self.entries(top, "gpus", "")
        protocol = self.text(top, "protocol", "")
        if protocol not in ("Simple", "LL", ""):
            self.problems.append(f"protocol: expected Simple or LL, found {protocol!r}")
        if len(gpus) > _MOST_RANKS:
            self.problems.append(f"gpus: expected at most {_MOST_RANKS}, found {len(gpus)}")
            gpus = []
        return ExecutionPlan(
            name=self.text(top, "name", ""),
            collective=self.text(top, "collective", ""),
            protocol=protocol,
            in_place=self.truth(top, "inplace", None),
            gpus=tuple(self.gpu(gpu, f"gpus[{rank}]", rank) for rank, gpu in enumerate(gpus)),
            reuse_resources=self.truth(top, "reuse_resources", False),
            double_scratch=self.truth(top, "use_double_scratch_buffer", False),
            threads=self.number(top, "num_threads_per_block", "", 1, 1024, 1024),
            alignment=self.number(top, "buffer_alignment", "", 1, _MOST, 16),
            min_bytes=self.number(top, "min_message_size", "", 0, (1 << 64) - 1, 0),
            max_bytes=self.number(top, "max_message_size", "", 0, (1 << 64) - 1, (1 << 64) - 1),
        )

    def gpu(self, document: object, path: str, rank: int) -> PlanRank:
        gpu = self.mapping(document, path)
        number = self.number(gpu, "id", path, 0, _MOST, None)
        if gpu and number != rank:
            self.problems.append(f"{path}.id: expected {rank}, its place in the list, found {number}")
        sizes = [self.number(gpu, name, path, 0, _MOST_CHUNKS, None) for name in _SIZES]
        memory, port, switches = self.channels(gpu, path)
        return PlanRank(
            input_chunks=sizes[0],
            output_chunks=sizes[1],
            scratch_chunks=sizes[2],
            memory=memory,
            port=port,
            switch=switches,
            remote_buffers=tuple(
                self.remote_buffer(buffer, where)
                for buffer, where in self.objects(gpu, "remote_buffers", path)
            ),
            semaphores=tuple(
                self.number(semaphore, "init_value", where, 0, _MOST, None)
                for semaphore, where in self.objects(gpu, "semaphores", path, optional=True)
            ),
            threadblocks=tuple(
                self.threadblock(block, where, at)
                for at, (block, where) in enumerate(self.objects(gpu, "threadblocks", path))
            ),
        )

    def channels(
        self, gpu: dict[str, Any], path: str
    ) -> tuple[tuple[int, ...], tuple[int, ...], tuple[Switch, ...]]:
        peers: dict[str, list[int]] = {"memory": [], "port": []}
        switches: list[Switch] = []
        for channel, place in self.objects(gpu, "channels", path):
            kind = self.word(channel, "channel_type", place, CHANNEL_TYPES)
            if kind == "switch":
                buffer = self.word(channel, "buffer_type", place, BUFFERS)
                for group, where in self.objects(channel, "rank_groups", place):
                    switches.append(Switch(buffer, self.numbers(group, "ranks", where)))
            elif kind != "none":
                peers[kind] += self.numbers(channel, "connected_to", place)
        return tuple(peers["memory"]), tuple(peers["port"]), tuple(switches)

    def remote_buffer(self, buffer: dict[str, Any], path: str) -> RemoteBuffer:
        access = self.entries(buffer, "access_channel_types", path)
        for at, kind in enumerate(access):
            if kind not in CHANNEL_TYPES:
                self.problems.append(
                    f"{path}.access_channel_types[{at}]: expected {_one_of(CHANNEL_TYPES)}, found {kind!r}"
                )
        return RemoteBuffer(
            rank=self.number(buffer, "rank", path, 0, _MOST, None),
            buffer=self.word(buffer, "type", path, BUFFERS),
            access=tuple(str(kind) for kind in access),
        )

    def threadblock(self, block: dict[str, Any], path: str, at: int) -> Threadblock:
        number = self.number(block, "id", path, 0, _MOST, None)
        if block and number != at:
            self.problems.append(f"{path}.id: expected {at}, its place in the list, found {number}")
        ids: dict[str, list[int]] = {"memory": [], "port": [], "switch": [], "none": []}
        for channel, where in self.objects(block, "channels", path):
            kind = self.word(channel, "channel_type", where, CHANNEL_TYPES)
            ids[kind] += self.numbers(channel, "channel_ids", where)
        buffers: dict[str, list[int]] = {"memory": [], "port": [], "switch": [], "none": []}
        for reference, where in self.objects(block, "remote_buffer_refs", path, optional=True):
            kind = self.word(reference, "access_channel_type", where, CHANNEL_TYPES)
            buffers[kind] += self.numbers(reference, "remote_buffer_ids", where)
        return Threadblock(
            operations=self.operations(block, path),
            memory=tuple(ids["memory"]),
            port=tuple(ids["port"]),
            switch=tuple(ids["switch"]),
            memory_buffers=tuple(buffers["memory"]),
            port_buffers=tuple(buffers["port"]),
        )

    def operations(self, holder: dict[str, Any], path: str) -> tuple[Operation, ...]:
        return tuple(self.operation(one, where) for one, where in self.objects(holder, "ops", path))

    def operation(self, found: dict[str, Any], path: str) -> Operation:
        name = self.word(found, "name", path, OPERATIONS)
        group = self.mapping(found.get("tbg_info", {}), f"{path}.tbg_info")
        units = self.mapping(found.get("iter_context", {}), f"{path}.iter_context")
        where = f"{path}.tbg_info"
        slices = self.number(group, "tbg_size", where, 1, 1 << 10, None) if group else 1
        return Operation(
            name=name,
            src=self.operands(found, "src_buff", path),
            dst=self.operands(found, "dst_buff", path),
            channel_type=(
                self.word(found, "channel_type", path, CHANNEL_TYPES) if "channel_type" in found else "none"
            ),
            channels=self.numbers(found, "channel_ids", path) if "channel_ids" in found else (),
            slice=self.number(group, "tb_id", where, 0, max(slices - 1, 0), None) if group else 0,
            slices=slices,
            barrier=self.number(found, "barrier_id", path, 0, _MOST, -1),
            blocks=self.number(found, "num_threadblocks", path, 0, _MOST, 0),
            semaphores=self.numbers(found, "semaphore_ids", path) if "semaphore_ids" in found else (),
            unit_bytes=(
                self.number(units, "unit_size", f"{path}.iter_context", 1, _MOST, None) if units else 0
            ),
            chunks=self.number(units, "num_chunks", f"{path}.iter_context", 1, _MOST, None) if units else 0,
            inner=self.operations(found, path) if name == "pipeline" else (),
            reduce_op=self.text(found, "reduce_op", path) if "reduce_op" in found else "",
        )

    def operands(self, found: dict[str, Any], name: str, path: str) -> tuple[Operand, ...]:
        operands = self.objects(found, name, path, optional=True)
        return tuple(self.operand(operand, where) for operand, where in operands)

    def operand(self, found: dict[str, Any], path: str) -> Operand:
        index = self.number(found, "index", path, 0, _MOST, None)
        size = self.number(found, "size", path, 1, _MOST, None)
        named = [name for name in ("type", "buffer_id", "switch_channel_id") if name in found]
        if len(named) != 1:
            self.problems.append(
                f"{path}: expected one of type, buffer_id and switch_channel_id, found {len(named)} of them"
            )
            return Operand(index, size, "i")
        if named == ["type"]:
            return Operand(index, size, self.word(found, "type", path, BUFFERS))
        number = self.number(found, named[0], path, 0, _MOST, None)
        if named == ["buffer_id"]:
            return Operand(index, size, remote=number)
        return Operand(index, size, switch=number)

    def mapping(self, value: object, path: str) -> dict[str, Any]:
        if isinstance(value, dict):
            return value
        self.problems.append(f"{path}: expected an object, found {_brief(value)}")
        return {}

    def objects(
        self, holder: dict[str, Any], name: str, path: str, *, optional: bool = False
    ) -> Iterator[tuple[dict[str, Any], str]]:
        """Yield (object, its path) for each entry of a list; an ``optional`` list may be missing."""
        if name in holder or not optional:
            for at, entry in enumerate(self.entries(holder, name, path)):
                where = f"{path}.{name}[{at}]"
                yield self.mapping(entry, where), where

    def entries(self, holder: dict[str, Any], name: str, path: str) -> list[Any]:
        value = self.value(holder, name, path, None)
        if value is None or isinstance(value, list):
            return value or []
        self.problems.append(f"{_at(path, name)}: expected a list, found {_brief(value)}")
        return []

    def numbers(self, holder: dict[str, Any], name: str, path: str) -> tuple[int, ...]:
        found = []
        for at, value in enumerate(self.entries(holder, name, path)):
            if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST:
                found.append(value)
            else:
                self.problems.append(
                    f"{_at(path, name)}[{at}]: expected a whole number from 0, found {_brief(value)}"
                )
        return tuple(found)

    def number(
        self, holder: dict[str, Any], name: str, path: str, low: int, high: int, default: int | None
    ) -> int:
        value = self.value(holder, name, path, default)
        if value is None:
            return low
        # A default may be below ``low``: it then means that the file has no such value.
        whole = isinstance(value, int) and not isinstance(value, bool)
        if whole and (low <= value <= high or value == default):
            return int(value)
        self.problems.append(
            f"{_at(path, name)}: expected a whole number from {low} to {high}, found {_brief(value)}"
        )
        return low

    def truth(self, holder: dict[str, Any], name: str, default: bool | None) -> bool:
        value = self.value(holder, name, "", default)
        if value is not None and not isinstance(value, bool):
            self.problems.append(f"{name}: expected true or false, found {_brief(value)}")
        return value is True

    def text(self, holder: dict[str, Any], name: str, path: str) -> str:
        value = self.value(holder, name, path, None)
        if value is None or isinstance(value, str):
            return value or ""
        self.problems.append(f"{_at(path, name)}: expected a text, found {_brief(value)}")
        return ""

    def word(self, holder: dict[str, Any], name: str, path: str, known: tuple[str, ...]) -> str:
        value = self.value(holder, name, path, None)
        if isinstance(value, str) and value in known:
            return value
        if value is not None:
            self.problems.append(f"{_at(path, name)}: expected {_one_of(known)}, found {_brief(value)}")
        return known[0]

    def value(self, holder: dict[str, Any], name: str, path: str, default: object) -> Any:
        """Return the value under ``name``, or the default; without either, note that it is missing."""
        if name in holder and holder[name] is not None:
            return holder[name]
        # An empty object stands for a malformed one, whose problem is noted already.
        if default is None and holder:
            self.problems.append(f"{_at(path, name)}: missing")
        return default


def _objects(value: object) -> Iterable[dict[str, Any]]:
    return (one for one in value if isinstance(one, dict)) if isinstance(value, list) else ()


def _at(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _one_of(known: tuple[str, ...]) -> str:
    return f"{', '.join(known[:-1])} or {known[-1]}"


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
