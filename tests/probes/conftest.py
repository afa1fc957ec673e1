"""Recorded machines: /sys as text and NVML's answers, replayed through the same code as a live one."""

import functools
import json
from dataclasses import dataclass
from pathlib import Path

import pynvml
import pytest

from probes.nvml.record import RecordedNvml
from probes.sysfs.record import unpack

MACHINES = Path(__file__).parents[1] / "machines"


@dataclass(frozen=True)
class Machine:
    root: Path
    nvml: RecordedNvml
    expected: dict


@pytest.fixture(scope="session")
def machine(tmp_path_factory):
    """A function that gives a recorded machine by its name. Tests share its folder, so they only read it."""

    @functools.cache
    def unpacked(name):
        root = tmp_path_factory.mktemp(name)
        unpack((MACHINES / name / "sysfs.txt").read_text(), root, name)
        return root

    def load(name):
        answers = json.loads((MACHINES / name / "nvml.json").read_text())
        expected = json.loads((MACHINES / name / "expected.json").read_text())
        return Machine(unpacked(name), RecordedNvml(answers, pynvml), expected)

    return load
