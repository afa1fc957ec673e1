"""Recording and replay of NVML's answers: each call of a detection with its arguments.

Answers are stored by function, then by arguments: "0,3" is GPU 0 and link 3; "0", "*,3" or "*" match several.
{"error": 4} is NVML's error 4. The driver lacks functions without an entry.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

__all__ = ["RecordedNvml", "RecordingNvml"]

_HANDLE, _FIELDS = "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetFieldValues"
_NOTHING = object()


class RecordingNvml:
    """A wrapper of the module pynvml that keeps the answers it passes on."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._handles: list[tuple[Any, int]] = []
        self.answers: dict[str, dict[str, Any]] = {}

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._nvml, name)
        if not name.startswith("nvml") or not callable(found):
            return found

        def call(*arguments: Any) -> Any:
            known = self.answers.setdefault(name, {})
            key = ",".join(self._words(arguments)) or "*"
            try:
                answer = found(*arguments)
            except self._nvml.NVMLError as error:
                known[key] = {"error": int(error.value)}
                raise
            if name == _HANDLE:
                self._handles.append((answer, int(arguments[0])))
                known[key] = int(arguments[0])
            else:
                known[key] = _fields(answer) if name == _FIELDS else _plain(_filled(arguments, answer))
            return answer

        return call

    def _words(self, arguments: tuple[Any, ...]) -> Iterator[str]:
        for argument in arguments:
            number = next((index for handle, index in self._handles if handle is argument), None)
            yield from [str(number)] if number is not None else _word(argument)


class RecordedNvml:
    """A replacement of the module pynvml with its real errors and with recorded answers."""

    def __init__(self, answers: dict[str, dict[str, Any]], nvml: Any) -> None:
        self._answers = answers
        self._nvml = nvml

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            return getattr(self._nvml, name)

        def call(*arguments: Any) -> Any:
            return self._answer(name, arguments)

        return call

    def _answer(self, name: str, arguments: tuple[Any, ...]) -> Any:
        known = self._answers.get(name)
        if known is None:
            if name == _HANDLE:
                return arguments[0]
            raise self._nvml.NVMLError(self._nvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        words = [word for argument in arguments for word in _word(argument)]
        tries = [",".join(words), *_shorter(words), *words[:1], *(f"*,{word}" for word in words[1:]), "*"]
        answer = next((known[key] for key in tries if key in known), _NOTHING)
        if answer is _NOTHING:
            raise self._nvml.NVMLError(self._nvml.NVML_ERROR_NOT_SUPPORTED)
        if isinstance(answer, dict) and "error" in answer:
            raise self._nvml.NVMLError(answer["error"])
        outs = [one for argument in arguments if (one := _structure(argument)) is not None]
        if outs and isinstance(answer, dict):
            _fill(outs[0], answer)
            return 0
        found = json.loads(json.dumps(answer), object_hook=lambda fields: SimpleNamespace(**fields))
        return [found] if name == _FIELDS else found


def _shorter(words: list[str]) -> list[str]:
    """Return keys without a field's link: a call "0,164:3" also takes the answer of "0,164"."""
    plain = [word.partition(":")[0] for word in words]
    return [",".join(plain), *(f"*,{word}" for word in plain[1:])] if plain != words else []


def _word(argument: Any) -> Iterator[str]:
    # The module's NVML_P2P_CAPS_INDEX_READ is a tuple by mistake. As ctypes refuses it, a replay must, too.
    assert not isinstance(argument, tuple)
    if _structure(argument) is not None:
        return
    if isinstance(argument, list):
        first = argument[0]
        yield ":".join(map(str, first)) if isinstance(first, tuple) else str(first)
    else:
        yield str(argument)


def _structure(argument: Any) -> Any:
    """Return the structure that a call fills in; None for any other argument."""
    behind = getattr(argument, "_obj", argument)
    return behind if isinstance(behind, ctypes.Structure) else None


def _filled(arguments: tuple[Any, ...], answer: Any) -> Any:
    return next((one for argument in arguments if (one := _structure(argument)) is not None), answer)


def _fields(values: Any) -> Any:
    return {"nvmlReturn": int(values[0].nvmlReturn), "value": {"uiVal": int(values[0].value.uiVal)}}


def _plain(answer: Any) -> Any:
    """Convert an answer to values that JSON can hold."""
    if isinstance(answer, bytes):
        return answer.decode(errors="replace")
    if isinstance(answer, ctypes.Structure):
        return {name: _plain(getattr(answer, name)) for name, *_ in answer._fields_}
    if isinstance(answer, ctypes.Array | list | tuple):
        return [_plain(entry) for entry in answer]
    if isinstance(answer, int | float | str | None):
        return answer
    # A process is an object of the module pynvml, whose fields are attributes.
    fields = getattr(answer, "__dict__", None)
    return str(answer) if fields is None else {name: _plain(value) for name, value in fields.items()}


def _fill(structure: Any, answer: dict[str, Any]) -> None:
    for name, *_ in structure._fields_:
        if isinstance(answer.get(name), list):
            getattr(structure, name)[:] = answer[name]
        elif name in answer:
            value = answer[name]
            setattr(structure, name, value.encode() if isinstance(value, str) else value)
