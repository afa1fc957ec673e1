"""The door of the backend: known to torch where that is installed, quiet where it is not."""

import subprocess
import sys
from importlib.metadata import entry_points

import pytest

from ccctl.torch import register


def run(script):
    return subprocess.run(
        [sys.executable, "-P", "-c", script], capture_output=True, text=True, timeout=120, check=True
    ).stdout.strip()


def test_the_entry_point_is_the_function_that_registers():
    (door,) = entry_points(group="torch.backends", name="ccctl")
    assert door.load() is register


def test_without_torch_nothing_is_raised_and_nothing_else_imports_it():
    said = run(
        "import sys; sys.modules['torch'] = None; import ccctl.torch, exec.training; ccctl.torch.register();"
        "print(sys.modules['torch'])"
    )
    assert said == "None"


def test_the_packages_do_not_import_torch():
    said = run("import sys, ccctl, ccctl.main, exec, exec.training.planned; print('torch' in sys.modules)")
    assert said == "False"


def test_torch_knows_the_backend():
    pytest.importorskip("torch")
    said = run(
        "import torch.distributed as dist, ccctl.torch;"
        "print(dist.Backend('ccctl'), 'ccctl' in dist.Backend.backend_list)"
    )
    assert said == "ccctl True"
