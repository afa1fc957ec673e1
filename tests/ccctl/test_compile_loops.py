"""Loops compiled ahead serve who may write nowhere; a failure leaves those that were there."""

import ast
import functools
import os
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

from ccctl import compile_loops
from ccctl.compile_loops import compile_into, uncompiled
from probes.base import gc_paused

USE = """
from pathlib import Path
from synth.kernels import stored_loops
stored_loops.SHIPPED_LOOPS = Path({folder!r})
from exec.mpi import interpreter
interpreter.compile_for(["uint8", "float16"])
print(sum(interpreter.advance.stats.cache_misses.values()), len(interpreter.advance.signatures))
"""


def test_who_finds_compiled_loops_compiles_and_keeps_nothing(tmp_path):
    folder = tmp_path / "package" / "loops"
    count = compile_into(folder, (("exec uint8 float16",),))
    assert count == len(list(folder.iterdir())) > 5
    assert [path.name for path in folder.parent.iterdir()] == ["loops"]
    # Each loop that this case calls was found in the sources, and each that it does not call is named.
    left = uncompiled(folder)
    assert not [name for name in left if name.startswith("exec.mpi.")]
    assert "synth.scheduling.link_chunk_matching.match" in left
    folder.chmod(0o555)
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONPATH": str(Path.cwd())}
    environment.pop("NUMBA_CACHE_DIR", None)
    command = [sys.executable, "-P", "-c", USE.format(folder=str(folder))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    folder.chmod(0o755)
    # One interpreter serves all types.
    assert done.stdout.split() == ["0", "1"] and not done.stderr
    assert not list((tmp_path / "cache").rglob("*.loop"))


@pytest.mark.long
def test_the_case_of_demands_compiles_its_loops(tmp_path):
    compile_into(tmp_path / "loops", (("demand",),))
    assert not [name for name in uncompiled(tmp_path / "loops") if name.startswith("synth.demands.")]


def test_a_command_that_fails_is_told_and_leaves_the_loops_that_were_there(tmp_path):
    (tmp_path / "loops").mkdir()
    (tmp_path / "loops" / "old.loop").touch()
    with pytest.raises(RuntimeError, match="synth --network nowhere: status"):
        compile_into(tmp_path / "loops", (("synth --network nowhere",),))
    assert [path.name for path in tmp_path.rglob("*")] == ["loops", "old.loop"]


def import_graph():
    """The imports between all modules; an import from a package is one of the module that it serves."""
    graph = grimp.build_graph("ccctl", "synth", "exec", "probes")
    for name in graph.modules:
        path = Path(compile_loops._ROOT, *name.split("."))
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        for node in imports_from(path):
            if node.module:
                for one in node.names:
                    home = served_by(node.module, one.name)
                    if home in graph.modules:
                        graph.add_import(importer=name, imported=home)
    return graph


@functools.cache
def imports_from(path):
    """The ``from … import …`` of a file; none where there is no file."""
    # The collector would look at each node again and again.
    with gc_paused():
        nodes = statements(ast.parse(path.read_text())) if path.is_file() else ()
        return [node for node in nodes if isinstance(node, ast.ImportFrom)]


def statements(node):
    """All statements below a node; most other nodes are in expressions, which import nothing."""
    for name in ("body", "orelse", "handlers", "finalbody", "cases"):
        for one in getattr(node, name, ()):
            yield one
            yield from statements(one)


@functools.cache
def served_by(package, name):
    """The module that a package serves a name from; "" where it serves none of that name."""
    for node in imports_from(Path(compile_loops._ROOT, *package.split("."), "__init__.pyi")):
        if name in {one.name for one in node.names}:
            home = f"{package}.{node.module or name}"
            return served_by(home, name) or home
    return ""


def test_cases_reach_every_module_with_a_loop(tmp_path):
    imports = import_graph()
    reached = {name for name in imports.modules if name.startswith("ccctl.commands.")}
    # The published methods are imported by name, so no import statement leads to them.
    reached |= {name for name in imports.modules if name.startswith("synth.published.")}
    for script in compile_loops._PYTHON.values():
        for node in ast.walk(ast.parse(script)):
            if isinstance(node, ast.ImportFrom):
                names = {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
                reached |= names & imports.modules
    for name in [*reached]:
        reached |= imports.find_upstream_modules(name)
    assert {loop.rpartition(".")[0] for loop in uncompiled(tmp_path)} <= reached


@pytest.mark.long
def test_cases_call_every_loop(tmp_path):
    compile_into(tmp_path / "loops")
    assert uncompiled(tmp_path / "loops") == []
