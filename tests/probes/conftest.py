"""Recorded machines: /sys as text and NVML's answers, replayed through the same code as a live one.

`sysfs.txt` has `[folder]` lines, then `file = content` and `link -> target`. `nvml.json` has for each
function its answers by arguments ("0,3" GPU 0 link 3; "0" or "*,3" or "*" where fewer decide);
{"error": n} raises NVML's error n. A function that is not there raises "Function Not Found".
"""

import json
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest

MACHINES = Path(__file__).parents[1] / "machines"


class RecordedNvml:
    """Stands where the module pynvml stands: its errors are the real ones, its answers recorded."""

    def __init__(self, answers):
        self._answers = answers

    def __getattr__(self, name):
        if not name.startswith("nvml"):
            return getattr(pynvml, name)

        def call(*arguments):
            return self._answer(name, arguments)

        return call

    def _answer(self, name, arguments):
        if name == "nvmlDeviceGetHandleByIndex" and name not in self._answers:
            return arguments[0]
        if name not in self._answers:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        words = [self._word(argument) for argument in arguments]
        known = self._answers[name]
        tries = [",".join(words), *words[:1], *(f"*,{word}" for word in words[1:]), "*"]
        answer = next(known[key] for key in tries if key in known)
        if isinstance(answer, dict) and "error" in answer:
            raise pynvml.NVMLError(answer["error"])
        found = json.loads(json.dumps(answer), object_hook=lambda fields: SimpleNamespace(**fields))
        return [found] if name == "nvmlDeviceGetFieldValues" else found

    @staticmethod
    def _word(argument):
        # ctypes refuses the tuple that the module calls NVML_P2P_CAPS_INDEX_READ, and so does this.
        assert not isinstance(argument, tuple)
        if isinstance(argument, list):
            argument = argument[0][0] if isinstance(argument[0], tuple) else argument[0]
        return str(argument)


@dataclass(frozen=True)
class Machine:
    root: Path
    nvml: RecordedNvml
    expected: dict


def unpack(text, root):
    folder = root
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        if line.startswith("["):
            folder = root / line.strip("[]")
            folder.mkdir(parents=True, exist_ok=True)
        elif " -> " in line:
            name, target = line.split(" -> ")
            (folder / name).symlink_to(target)
        elif " = " in line:
            name, content = line.split(" = ", 1)
            (folder / name).write_text(content + "\n")


@pytest.fixture
def machine(tmp_path):
    def load(name):
        folder = MACHINES / name
        unpack((folder / "sysfs.txt").read_text(), tmp_path)
        answers = json.loads((folder / "nvml.json").read_text())
        return Machine(tmp_path, RecordedNvml(answers), json.loads((folder / "expected.json").read_text()))

    return load
