"""A program of the chunk language: a plain function, and the settings of its decorator."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard, get_args

from probes.base import UsageError, gc_paused
from synth.collective import KINDS, MOST_RANKS, Collective, collective, kind_of
from synth.compiler import ChunkDag, compiled_program
from synth.lang.by_hand import require_threadblocks
from synth.lang.trace import Trace
from synth.network import Network
from synth.program import Program, Protocol

__all__ = ["Algorithm", "program"]

_SETTINGS = ("instances", "protocol", "chunks", "root", "in_place")


@dataclass(frozen=True, eq=False)
class Algorithm:
    """A decorated function; calling the algorithm with its parameters compiles it.

    Each setting of the decorator is a value, or a function of parameters of the algorithm.
    """

    body: Callable[..., None]
    collective: Any
    ranks: Any
    chunks: Any
    protocol: Any
    instances: Any
    in_place: Any
    root: Any
    name: str
    source: str

    def __call__(self, **parameters: Any) -> Program:
        return self.compile(parameters)

    def parameters(self) -> Mapping[str, Any]:
        """Return the parameters and their defaults, None if there is no default."""
        return {
            name: None if value.default is inspect.Parameter.empty else value.default
            for name, value in inspect.signature(self.body).parameters.items()
        }

    def trace(self, parameters: Mapping[str, Any], network: Network | None = None) -> tuple[ChunkDag, int]:
        """Run the function and return (its chunk DAG, number of instances).

        If there is a network, every statement that sends needs a link in it. Raises DataError, naming the
        statement at fault, and UsageError for wrong parameters.
        """
        values, settings = self._bound(parameters)
        wanted, gpus = self._collective(values, settings)
        if network is not None and network.ranks != wanted.ranks:
            raise UsageError(f"the network has {network.ranks} ranks, {self.name} {wanted.ranks}")
        links = frozenset(zip(network.src.tolist(), network.dst.tolist(), strict=True)) if network else None
        in_place = bool(self._setting("in_place", values, settings))
        if in_place and wanted.keeps_apart:
            raise UsageError(f"in_place: {wanted.label} cannot run in place: expected False, found True")
        protocol = self._setting("protocol", values, settings)
        if protocol not in get_args(Protocol):
            raise UsageError(f"protocol: expected {', '.join(get_args(Protocol))}, found {_shown(protocol)}")
        instances = self._setting("instances", values, settings)
        if not _is_count(instances) or not 1 <= instances <= 64:
            raise UsageError(f"instances: expected 1 to 64, found {_shown(instances)}")
        with (
            gc_paused(),
            Trace(wanted, gpus=gpus, in_place=in_place, source=self.source, links=links) as trace,
        ):
            self.body(**values)
        return trace.chunk_dag(self.name, protocol), instances

    def compile(
        self, parameters: Mapping[str, Any], *, network: Network | None = None, fuse: bool = True
    ) -> Program:
        """Return the compiled program, which ``synth.check`` has still to judge."""
        dag, instances = self.trace(parameters, network)
        require_threadblocks(dag)
        return compiled_program(dag, instances=instances, fuse=fuse)

    def _bound(self, parameters: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return (parameters of the function, settings that override the decorator's)."""
        known = self.parameters()
        settings = {name: value for name, value in parameters.items() if name not in known}
        unknown = [name for name in settings if name not in _SETTINGS]
        if unknown:
            raise UsageError(
                f"{self.name} has no parameter {unknown[0]}", hint=f"it has {', '.join([*known, *_SETTINGS])}"
            )
        values = {**known, **{name: parameters[name] for name in known if name in parameters}}
        lacking = [name for name, value in values.items() if value is None]
        if lacking:
            raise UsageError(f"{self.name} needs the parameter {lacking[0]}", hint=f"-p {lacking[0]}=…")
        return values, settings

    def _setting(self, name: str, values: Mapping[str, Any], settings: Mapping[str, Any]) -> Any:
        found = settings.get(name, getattr(self, name))
        if callable(found) and not isinstance(found, type):
            return found(**{key: values[key] for key in inspect.signature(found).parameters if key in values})
        return found

    def _collective(self, values: Mapping[str, Any], settings: Mapping[str, Any]) -> tuple[Collective, int]:
        """Return (collective, GPUs of a node, or 0 if ranks are not given as (nodes, gpus))."""
        ranks, gpus = self._setting("ranks", values, settings), 0
        if isinstance(ranks, tuple) and len(ranks) == 2 and all(map(_is_count, ranks)):
            gpus = ranks[1]
            ranks = ranks[0] * gpus
        wanted = self._setting("collective", values, settings)
        if isinstance(wanted, Collective):
            return wanted, gpus
        if not isinstance(wanted, str):
            raise UsageError(f"collective: expected {', '.join(KINDS)}, found {_shown(wanted)}")
        if not _is_count(ranks) or not 1 <= ranks <= MOST_RANKS:
            raise UsageError(
                f"{self.name}: ranks: expected a number from 1 to {MOST_RANKS}, or (nodes, gpus), "
                f"found {_shown(ranks)}"
            )
        chunks, root = (self._setting(name, values, settings) for name in ("chunks", "root"))
        for name, value in (("chunks", chunks), ("root", root)):
            if not _is_count(value):
                raise UsageError(f"{self.name}: {name}: expected a whole number, found {_shown(value)}")
        return collective(kind_of(wanted), ranks, chunks, root=root), gpus


def _is_count(value: object) -> TypeGuard[int]:
    """Return whether a parameter is a whole number and no bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def _shown(value: object) -> str:
    """Return a value as messages show it; repr raises for whole numbers of thousands of digits."""
    return "a number of thousands of digits" if _is_count(value) and value.bit_length() > 256 else repr(value)


def program(
    collective: Any,
    ranks: Any,
    *,
    chunks: Any = 1,
    protocol: Any = "Simple",
    instances: Any = 1,
    in_place: Any = False,
    root: Any = 0,
    name: str = "",
) -> Callable[[Callable[..., None]], Algorithm]:
    """Decorate a function whose statements copy and reduce the chunks of a collective.

    ``ranks`` is a number or (nodes, gpus). ``chunks`` is the number of chunks that each rank starts with,
    counted as by ``synth.collective.collective``. ``in_place``: output and input share memory. Each setting
    may also be a function of parameters of the decorated function.
    """

    def decorate(body: Callable[..., None]) -> Algorithm:
        return Algorithm(
            body=body,
            collective=collective,
            ranks=ranks,
            chunks=chunks,
            protocol=protocol,
            instances=instances,
            in_place=in_place,
            root=root,
            name=name or body.__name__,
            source=body.__code__.co_filename,
        )

    return decorate
