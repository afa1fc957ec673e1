"""Each call of CUDA, NCCL and NVML fits the signature in the real package, which needs no driver for it."""

import importlib.util
import inspect
import re
import warnings

import pynvml
import pytest
from cuda_tasks import TASKS

# Types of Cython, and the Python types that they take.
TAKES = {
    **dict.fromkeys(("int", "intptr_t", "size_t", "unsigned int"), int),
    "bytes": bytes,
    "str": str,
}
# Parameters without a type whose arguments are streams, events and arrays, which the recorder leaves out.
OBJECTS = {"stream", "start_event", "end_event", "a", "arr"}
# CuPy documents no signature of them, or they are attributes.
UNDOCUMENTED = {"Function", "Device.__exit__", "Event.done"}


def made(monkeypatch):
    """Return each (name, arguments) that a task passes to CUDA, NCCL or NVML."""
    return {call for task in TASKS.values() for call in task(monkeypatch)[0].passed}


def parts_of_cupy():
    """Return what holds CuPy's calls, in the order in which a name is looked up."""
    with warnings.catch_warnings():
        # It warns where it finds no NCCL.
        warnings.simplefilter("ignore")
        import cupy
        from cupy.cuda import driver, function, nccl, runtime

    return [runtime, driver, cupy.cuda, function, nccl, getattr(nccl, "NcclCommunicator", None), cupy]


def found_in(parts, name):
    """Return what has a name such as Event.record, None if there is nothing."""
    for part in parts:
        for word in name.split("."):
            part = getattr(part, word, None)
        if part is not None:
            return part
    return None


def parameters(call):
    """Yield (type, name, whether it has a default) of each parameter."""
    try:
        texts = [str(one) for one in inspect.signature(call).parameters.values()]
    except ValueError:
        # Cython writes the signature of a compiled function into the first line of its documentation.
        first = call.__doc__.partition("\n")[0]
        texts = [text for text in re.search(r"\((.*)\)", first)[1].split(", ") if text]
    for text in texts:
        told, default = text.partition("=")[::2]
        *kind, name = told.split(" ")
        if name != "self":
            yield " ".join(kind), name, bool(default)


def fits(call, arguments):
    """Return whether a call takes these arguments."""
    taken = [one for one in parameters(call) if one[0] or one[1] not in OBJECTS]
    least = sum(not default for _, _, default in taken)
    return least <= len(arguments) <= len(taken) and all(
        kind not in TAKES or isinstance(argument, TAKES[kind])
        for (kind, _, _), argument in zip(taken, arguments, strict=False)
    )


def test_calls_of_nvml_fit_its_package(monkeypatch):
    calls = [call for call in made(monkeypatch) if call[0].startswith("nvml")]
    assert len(calls) >= 4
    assert [call for call in calls if not fits(getattr(pynvml, call[0]), call[1])] == []


@pytest.mark.gpu
@pytest.mark.skipif(importlib.util.find_spec("cupy") is None, reason="CuPy is not installed")
def test_calls_of_cuda_and_nccl_fit_cupy(monkeypatch):
    parts = parts_of_cupy()
    calls = [call for call in made(monkeypatch) if not call[0].startswith("nvml")]
    found = {name: found_in(parts, name) for name, _ in calls}
    assert [name for name, call in found.items() if call is None] == []
    wrong = [call for call in calls if call[0] not in UNDOCUMENTED and not fits(found[call[0]], call[1])]
    assert wrong == []
    print(f"{len(found)} calls, {len(calls)} ways to make them")


def test_a_call_with_other_arguments_does_not_fit():
    def copy(dst, src, size=0):
        """Copy."""

    assert fits(copy, (1, 2)) and fits(copy, (1, 2, 3))
    assert not fits(copy, (1,)) and not fits(copy, (1, 2, 3, 4))
