"""Compiled loops between processes: where they are kept, and that damaged ones are compiled anew."""

import os
from pathlib import Path

import pytest
from numba_forks import new_python, numba_forks

from synth.kernels.stored_loops import cache_folder, loop_store

TWICE = """
from synth.kernels.compiled_loop import compiled

@compiled
def twice(x):
    return 2 * x
"""
LOOP = """
import logging, sys
sys.path[:0] = [{folder!r}, {here!r}]
if {shown}:
    logging.basicConfig(format="%(message)s")
from loop import twice
print(twice(21), sum(twice.stats.cache_hits.values()))
"""


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"NUMBA_CACHE_DIR": "/a", "XDG_CACHE_HOME": "/b"}, "/a/ccctl"),
        ({"XDG_CACHE_HOME": "/b"}, "/b/ccctl/numba"),
        ({"XDG_CACHE_HOME": "b", "HOME": "/c"}, "/c/.cache/ccctl/numba"),
        ({"HOME": "/c"}, "/c/.cache/ccctl/numba"),
        ({"HOME": "c"}, None),
    ],
)
def test_where_loops_are_kept(monkeypatch, variables, expected):
    for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert cache_folder() == (expected and Path(expected))


def test_where_nothing_can_be_kept_the_logs_say_what_that_costs(monkeypatch, caplog):
    monkeypatch.setenv("NUMBA_CACHE_DIR", "/dev/null/cache")
    loop_store().write("a.loop", b"", b"")
    assert "each command compiles them anew" in caplog.text


def run_loop(folder, *, new=False, shown=True, **variables):
    """Run the loop; in a ``new`` Python where numba has to read its settings."""
    (folder / "loop.py").write_text(TWICE)
    os.utime(folder / "loop.py", (0, 0))
    code = LOOP.format(folder=str(folder), here=str(Path.cwd()), shown=shown)
    environment = os.environ | {"CCCTL_COMPILE_ALL_LOOPS": "1"} | variables
    return (new_python if new else numba_forks().run)(code, environment)


def test_a_loop_whose_file_is_damaged_is_compiled_anew_and_kept(tmp_path):
    variables = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    assert run_loop(tmp_path, **variables).stdout.split() == ["42", "0"]
    (path,) = (tmp_path / "cache" / "ccctl").glob("*.loop")
    content = path.read_bytes()
    path.write_bytes(content[:-1000] + bytes(1000))
    again = run_loop(tmp_path, **variables)
    assert again.stdout.split() == ["42", "0"] and not again.stderr
    assert run_loop(tmp_path, **variables).stdout.split() == ["42", "1"]


@pytest.mark.long
def test_for_another_processor_a_loop_is_compiled_apart(tmp_path):
    variables = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    generic = variables | {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    for which in (variables, generic):
        assert run_loop(tmp_path, new=True, **which).stdout.split() == ["42", "0"]
    for which in (variables, generic):
        assert run_loop(tmp_path, new=True, **which).stdout.split() == ["42", "1"]


def test_without_a_place_to_keep_loops_a_library_computes_and_prints_nothing(tmp_path):
    (tmp_path / "file").touch()
    variables = {"NUMBA_CACHE_DIR": str(tmp_path / "file")}
    done = run_loop(tmp_path, shown=False, **variables)
    assert done.stdout.split() == ["42", "0"] and not done.stderr
    done = run_loop(tmp_path, **variables)
    assert done.stderr.count("cannot be kept") == len(done.stderr.splitlines()) == 1
