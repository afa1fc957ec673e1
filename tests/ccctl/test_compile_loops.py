"""Loops compiled ahead serve who may write nowhere; a failure leaves those that were there."""

import ast
import functools
import os
import re
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

from ccctl import compile_loops
from ccctl.compile_loops import compile_into, uncompiled

# A statement in one line, or with its names in parentheses.
FROM = re.compile(r"^ *from [\w.]+ import (?:\([^)]*\)|[^(\n]+)", re.MULTILINE)
# A script that calls every loop of one module: a case that compiles in a second.
BITSETS = """
import numpy as np
from synth.kernels import bitset
words = np.zeros(2, np.uint64)
bitset.add(words, 70)
print(bitset.contains(words, 70), bitset.lowest(words[1]), bitset.throw(bitset.dice_of(7), 1))
"""
USE = """
from pathlib import Path
from synth.kernels import stored_loops
stored_loops.SHIPPED_LOOPS = Path({folder!r})
{calls}
print([(len(loop.stats.cache_hits), len(loop.stats.cache_misses)) for loop in ({loops},)])
"""
INTERPRETER = "from exec.mpi import interpreter; interpreter.compile_for(['uint8', 'float16'])"


@pytest.mark.parametrize(
    ("case", "package", "calls", "loops"),
    [
        (
            "bitsets",
            "synth.kernels.bitset.",
            BITSETS,
            "bitset.add, bitset.contains, bitset.lowest, bitset.throw, bitset.dice_of",
        ),
        pytest.param(
            "exec uint8 float16", "exec.mpi.", INTERPRETER, "interpreter.advance", marks=pytest.mark.long
        ),
    ],
)
def test_who_finds_compiled_loops_compiles_and_keeps_nothing(
    case, package, calls, loops, tmp_path, monkeypatch
):
    monkeypatch.setitem(compile_loops._PYTHON, "bitsets", BITSETS)
    folder = tmp_path / "package" / "loops"
    count = compile_into(folder, ((case,),))
    assert count == len(list(folder.iterdir())) >= 5
    assert [path.name for path in folder.parent.iterdir()] == ["loops"]
    # Each loop that this case calls was found in the sources, and each that it does not call is named.
    left = uncompiled(folder)
    assert not [name for name in left if name.startswith(package)]
    assert "synth.scheduling.link_chunk_matching.match" in left
    folder.chmod(0o555)
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONPATH": str(Path.cwd())}
    environment.pop("NUMBA_CACHE_DIR", None)
    use = USE.format(folder=str(folder), calls=calls, loops=loops)
    command = [sys.executable, "-P", "-c", use]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    folder.chmod(0o755)
    assert not done.stderr
    # Each loop was found, in one version: the interpreter serves all types.
    assert {*ast.literal_eval(done.stdout.splitlines()[-1])} == {(1, 0)}
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
    # grimp makes this set anew each time that it is asked for.
    modules = graph.modules
    for name in modules:
        path = Path(compile_loops._ROOT, *name.split("."))
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        for node in imports_from(path):
            if node.module:
                for one in node.names:
                    home = served_by(node.module, one.name)
                    if home in modules:
                        graph.add_import(importer=name, imported=home)
    return graph


@functools.cache
def imports_from(path):
    """The ``from … import …`` of a file; none where there is no file."""
    # To parse whole files would take seconds.
    found = FROM.findall(path.read_text()) if path.is_file() else []
    return ast.parse("\n".join(one.lstrip() for one in found)).body


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
