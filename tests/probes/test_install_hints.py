"""Hints name packages that exist on the index: the name ccctl there is not this project's."""

import shlex
import tomllib
from pathlib import Path

import pytest

from probes.base.install_hints import EXTRAS, install

ROOT = Path(__file__).resolve().parents[2]


def test_the_extras_are_those_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {name: tuple(packages) for name, packages in project["optional-dependencies"].items()} == EXTRAS


@pytest.mark.parametrize("extra", EXTRAS)
def test_a_hint_is_a_command_that_a_shell_takes(extra):
    assert shlex.split(install(extra)) == ["pip", "install", *EXTRAS[extra]]


def test_of_several_extras_any_one_will_do():
    assert install("cuda12", "cuda13").count("pip install ") == 2 and " or " in install("cuda12", "cuda13")
    assert install("png", beside=("torch",)) == "pip install 'resvg-py>=0.5' torch"


def test_mpi4py_comes_only_with_what_needs_mpi():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert not [one for one in project["dependencies"] if one.startswith("mpi4py")]
    extras = project["optional-dependencies"]
    brings = {name for name, packages in extras.items() if any(one.startswith("mpi4py") for one in packages)}
    assert brings == {"mpi", "openmpi", "mpich"}


def test_nothing_tells_anybody_to_install_ccctl_from_the_index():
    places = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "man").iterdir()]
    for package in ("ccctl", "exec", "synth", "probes"):
        places += (ROOT / package).rglob("*.py")
    wrong = [
        str(path) for path in places if "install 'ccctl" in path.read_text() or "'ccctl[" in path.read_text()
    ]
    assert wrong == []
