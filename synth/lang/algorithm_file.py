"""Files in the chunk language: the Python file is run, and a function that it decorates is compiled."""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Callable, Mapping
from types import CodeType
from typing import TYPE_CHECKING, Any, TypeVar

from probes.base import CcctlError, DataError, UsageError
from probes.files import read_bytes

if TYPE_CHECKING:
    from synth.lang.algorithm import Algorithm
    from synth.network import Network
    from synth.program import Program

__all__ = ["compiled_algorithm", "is_algorithm"]

Result = TypeVar("Result")


def is_algorithm(path: str) -> bool:
    """Return whether a path names a program: ``file.py``, or ``file.py:function``."""
    return path.endswith(".py") or ".py:" in path


def compiled_algorithm(
    path: str,
    parameters: Mapping[str, Any] | None = None,
    *,
    network: Network | None = None,
    instances: int | None = None,
    fuse: bool = True,
) -> tuple[Program, dict[str, str]]:
    """Return (the program that a file describes, not judged yet; the digest of the file).

    Raises DataError naming the file and line of the statement at fault.
    """
    file, _, function = path.partition(".py:")
    file = file if not function else f"{file}.py"
    content = read_bytes(file)
    found = _algorithm(file, content, function)
    values = dict(parameters or {})
    if instances is not None:
        values["instances"] = instances
    program = _blamed(file, lambda: found.compile(values, network=network, fuse=fuse))
    return program, {"algorithm": hashlib.sha256(content).hexdigest()}


def _algorithm(file: str, content: bytes, function: str) -> Algorithm:
    from synth.lang.algorithm import Algorithm

    namespace: dict[str, Any] = {"__name__": "__ccctl__", "__file__": file}
    code = _blamed(file, lambda: _compiled(file, content))
    _blamed(file, lambda: exec(code, namespace))
    known = {name: value for name, value in namespace.items() if isinstance(value, Algorithm)}
    if function and function not in known:
        raise UsageError(f"{file} has no program {function}", hint=f"it has {', '.join(known) or 'none'}")
    if not known:
        raise DataError(file, ["no function in it is decorated with @program from synth.lang"])
    if not function and len(known) > 1:
        raise UsageError(f"{file} has several programs", hint=f"say which: {file}:{next(iter(known))}")
    return known[function or next(iter(known))]


def _compiled(file: str, content: bytes) -> CodeType:
    try:
        return compile(content, file, "exec")
    # Causes are zero bytes, numbers of thousands of digits, and expressions that are nested too deep.
    except (ValueError, RecursionError, MemoryError, OverflowError) as error:
        raise DataError(file, [f"expected a program in Python: {error or type(error).__name__}"]) from error


def _blamed(file: str, work: Callable[[], Result]) -> Result:
    """Turn an exception of the author's code into an error that names file and line."""
    try:
        return work()
    except CcctlError:
        raise
    except SyntaxError as error:
        raise DataError(f"{error.filename or file}:{error.lineno}", [f"{error.msg}"]) from error
    except (Exception, SystemExit) as error:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
        # If no frame of the traceback is in the author's file, the mistake is not the author's.
        if not frames or isinstance(error, AssertionError | MemoryError):
            raise
        problem = f"{type(error).__name__}: {error}"
        raise DataError(f"{file}:{frames[-1].lineno}", [problem]) from error
