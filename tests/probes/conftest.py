"""Recorded machines: /sys as text and NVML's answers, replayed through the same code as a live one."""

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


@pytest.fixture
def machine(tmp_path):
    def load(name):
        folder = MACHINES / name
        unpack((folder / "sysfs.txt").read_text(), tmp_path, name)
        answers = json.loads((folder / "nvml.json").read_text())
        expected = json.loads((folder / "expected.json").read_text())
        return Machine(tmp_path, RecordedNvml(answers, pynvml), expected)

    return load
