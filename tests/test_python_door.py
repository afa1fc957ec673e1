"""The door for Python: what docs/reference/python.md shows runs, and each public function's example."""

import doctest
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest
from limits import HANG_S

ROOT = Path(__file__).parents[1]
FACES = ("probes", "synth", "exec", "ccctl")
STARTS_RANKS = {"exec.run", "exec.bench", "exec.launch", "probes.profile"}
# The pipeline of the page calls them, too, and each takes seconds of processor time.
LONG = {"exec.bench", "exec.launch", "exec.run", "probes.profile"}
FUNCTIONS = [
    "probes.detect", "probes.profile", "synth.synthesize", "synth.verify", "synth.simulate", "synth.compile",
    "exec.launch", "exec.run", "exec.bench", "ccctl.load", "ccctl.save",
]  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name, marks=[pytest.mark.mpi] * (name in STARTS_RANKS) + [pytest.mark.long] * (name in LONG)
        )
        for name in FUNCTIONS
    ],
)
def test_the_example_of_each_function_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    face, _, function = name.partition(".")
    found = getattr(importlib.import_module(face), function)
    [example] = doctest.DocTestFinder(recurse=False).find(found, name, globs={})
    runner = doctest.DocTestRunner()
    runner.run(example)
    assert runner.tries > 0
    assert runner.failures == 0


@pytest.mark.mpi
def test_the_pipeline_on_the_page_runs(tmp_path, _warm_commands):
    page = (ROOT / "docs/reference/python.md").read_text()
    [code] = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    assert len(code.splitlines()) <= 32
    # The quality of the measurement is not asked here, so it may be brief.
    briefly = code.replace("Effort(quick=True)", "Effort(quick=True, budget_s=0.2)")
    assert briefly != code
    done = _warm_commands.run([], "", tmp_path, HANG_S, script=briefly)
    assert done.returncode == 0, done.stderr
    assert "% of optimal" in done.stdout
    assert done.stdout.count(" 0 wrong") == 2
    assert (tmp_path / "profile.json").exists()


@pytest.mark.parametrize("face", FACES)
def test_a_face_names_what_is_there_and_imports_it_late(face):
    module = importlib.import_module(face)
    for name in module.__all__:
        assert getattr(module, name) is not None
    with pytest.raises(AttributeError, match="nothing"):
        _ = module.nothing
    heavy = ["numpy", "numba", "scipy", "mpi4py", "msgspec"]
    script = f"import sys, {face}; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.parametrize("face", FACES)
def test_the_page_names_everything_that_a_face_has(face):
    page = (ROOT / "docs/reference/python.md").read_text()
    named = set(re.findall(r"`(\w+)`", page))
    left = set(importlib.import_module(face).__all__) - named
    assert left <= {"METHODS", "NotApplicableError", "NotProvenError", "Synthesis"}
