"""The house: imports go down, stages neither print nor exit, and how big the modules are."""

import ast
import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FLOORS = ("probes", "synth", "exec", "ccctl")
MODULES = sorted(path for floor in FLOORS for path in (ROOT / floor).rglob("*.py"))
HEAVY = {"numpy", "numba", "scipy", "pulp", "mpi4py", "cupy", "rich", "psutil", "pynvml", "msgspec"}
FAR_OFF = {"print", "exit", "quit", "input"}


def name(path):
    return str(path.relative_to(ROOT))


@functools.cache
def tree_of(path):
    return ast.parse(path.read_text())


def imports(tree):
    """(package, line, whether it happens when the module is imported) of each import in a module."""
    inside = {
        node for function in ast.walk(tree) if isinstance(function, FUNCTIONS) for node in ast.walk(function)
    }
    for block in ast.walk(tree):
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.dump(block.test):
            inside |= set(ast.walk(block))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name.split(".")[0], node.lineno, node not in inside) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.split(".")[0], node.lineno, node not in inside


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_imports_go_down(path):
    above = FLOORS[FLOORS.index(path.relative_to(ROOT).parts[0]) + 1 :]
    assert [found for found in imports(tree_of(path)) if found[0] in above] == []


@pytest.mark.parametrize("path", sorted((ROOT / "ccctl" / "commands").rglob("*.py")), ids=name)
def test_commands_import_nothing_heavy_before_they_run(path):
    heavy = HEAVY | {"synth", "exec", "probes"}
    early = [found for found in imports(tree_of(path)) if found[0] in heavy and found[2]]
    assert early == []


# A rank is a process of its own, which has nobody to return to.
RANK = ROOT / "exec" / "launcher" / "worker.py"


@pytest.mark.parametrize(
    "path", [p for p in MODULES if p.relative_to(ROOT).parts[0] != "ccctl" and p != RANK], ids=name
)
def test_stages_neither_print_nor_exit(path):
    calls = [node for node in ast.walk(tree_of(path)) if isinstance(node, ast.Call)]
    named = [(call.func.id, call.lineno) for call in calls if isinstance(call.func, ast.Name)]
    dotted = [(ast.unparse(call.func), call.lineno) for call in calls if isinstance(call.func, ast.Attribute)]
    assert [call for call in named if call[0] in FAR_OFF] == []
    assert [call for call in dotted if call[0] in {"sys.exit", "os._exit", "sys.stdout.write"}] == []


@pytest.mark.parametrize("floor", FLOORS)
def test_every_floor_says_that_it_is_typed(floor):
    assert (ROOT / floor / "py.typed").exists()


@pytest.mark.parametrize("path", [path for path in MODULES if path.parent.name != "milp"], ids=name)
def test_integer_programs_go_through_the_one_door(path):
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ImportFrom) and node.module == "scipy.optimize":
            assert "milp" not in {alias.name for alias in node.names}
        assert not (isinstance(node, ast.Attribute) and node.attr in ("LpProblem", "PULP_CBC_CMD", "HiGHS"))


def test_sizes_are_told(capsys):
    lines = {path: len(path.read_text().splitlines()) for path in MODULES}
    functions = [
        (node.end_lineno - node.lineno + 1, f"{name(path)}: {node.name}")
        for path in MODULES
        for node in ast.walk(tree_of(path))
        if isinstance(node, FUNCTIONS)
    ]
    with capsys.disabled():
        print(f"\n{len(lines)} modules, {sum(lines.values())} lines")
        print("functions above 35 lines, modules above 250:")
        for length, what in sorted(functions, reverse=True)[:5]:
            if length > 35:
                print(f"  {length:5} {what}")
        for path, length in lines.items():
            if length > 250:
                print(f"  {length:5} {name(path)}")
    assert functions


# Command lines of other programs.
STARTS_PROGRAMS = ("exec/lab/", "exec/cuda/kernel/", "exec/launcher/")


@pytest.mark.parametrize(
    "path",
    [
        path
        for path in MODULES
        if path.relative_to(ROOT).parts[0] != "ccctl" and not name(path).startswith(STARTS_PROGRAMS)
    ],
    ids=name,
)
def test_libraries_know_no_options_of_the_command_line(path):
    texts = [
        node.value
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    options = [text for text in texts if re.search(r"(?<![\w-])--[a-z]", text)]
    # A recording is made by the command, and lstopo and others have options of their own.
    assert [
        text for text in options if not re.search(r"ccctl detect|lstopo|rocm-smi|detect --record", text)
    ] == []


# Forks a process for each module from one that has only loaded what is not ours: each in 20 ms, not in 200.
IMPORTS_ALONE = """
import os, sys
import numba, numpy, psutil, scipy.optimize, scipy.sparse.csgraph, typer
from importlib import import_module
for name in sys.argv[1:]:
    if (child := os.fork()) == 0:
        import_module(name)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        print(name)
"""


def test_whatever_a_command_imports_late_it_imports_alone():
    """Most tests of commands fork them from a process that has imported everything (`warm_commands`)."""
    late = {
        node.module
        for path in MODULES
        for function in ast.walk(tree_of(path))
        if isinstance(function, FUNCTIONS)
        for node in ast.walk(function)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] in FLOORS
    }
    chosen = sorted(name for name in late if not name.startswith(("exec.training.", "ccctl.torch.")))
    done = subprocess.run(
        [sys.executable, "-P", "-c", IMPORTS_ALONE, *chosen], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
