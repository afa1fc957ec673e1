"""The house: imports go down, packages have doors, stages neither print nor exit, functions are short."""

import ast
import functools
import re
import subprocess
import sys
import tokenize
from pathlib import Path

from probes.base import gc_paused

ROOT = Path(__file__).parents[1]
FLOORS = ("probes", "synth", "exec", "ccctl")
MODULES = sorted(path for floor in FLOORS for path in (ROOT / floor).rglob("*.py"))
HEAVY = {"numpy", "numba", "scipy", "pulp", "mpi4py", "cupy", "rich", "psutil", "pynvml", "msgspec"}
FAR_OFF = {"print", "exit", "quit", "input"}


def name(path):
    return str(path.relative_to(ROOT))


@functools.cache
def tree_of(path):
    # The collector would look at all trees again and again.
    with gc_paused():
        return ast.parse(path.read_text())


@functools.cache
def nodes_of(path):
    """All nodes of a module, outer ones first; most tests look at each once."""
    with gc_paused():
        return tuple(ast.walk(tree_of(path)))


def imports(nodes):
    """(package, line) of each import among the nodes."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((alias.name.split(".")[0], node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.split(".")[0], node.lineno


def run_at_import(tree):
    """The nodes of a module that run when it is imported: none of functions, none for types alone."""
    yield tree
    for node in ast.iter_child_nodes(tree):
        late = isinstance(node, FUNCTIONS) or (
            isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        )
        if not late:
            yield from run_at_import(node)


# A sentence that begins with one of these hides its subject.
RIDDLES = re.compile(r"(What|How|Whose|Which|Of|That|By|Where|Who|Than)\b")


# Parsing a file and splitting it into tokens take long, and few have these words after a quote or a #.
RIDDLE_IN_STRING = re.compile(rf"""["'](?:\s|\\\n)*{RIDDLES.pattern}""")
RIDDLE_IN_COMMENT = re.compile(rf"#[# ]*{RIDDLES.pattern}")


def openings(path):
    """(line, text) of each docstring and of each comment's first line, as far as it may hide its subject."""
    content = path.read_text()
    for node in ast.walk(ast.parse(content)) if RIDDLE_IN_STRING.search(content) else ():
        if isinstance(node, (ast.Module, ast.ClassDef, *FUNCTIONS)) and (text := ast.get_docstring(node)):
            yield getattr(node, "lineno", 1), text
    if not RIDDLE_IN_COMMENT.search(content):
        return
    before = 0
    with path.open("rb") as stream:
        for token in tokenize.tokenize(stream.readline):
            if token.type == tokenize.COMMENT:
                line = token.start[0]
                if line != before + 1:
                    yield line, token.string.lstrip("# ")
                before = line


def test_docstrings_and_comments_begin_with_their_subject():
    found = [
        f"{name(path)}:{line}: {text.splitlines()[0]}"
        for path in (*MODULES, *ROOT.glob("tests/**/*.py"), *ROOT.glob("benchmarks/*.py"))
        for line, text in openings(path)
        if RIDDLES.match(text)
    ]
    assert found == []


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def functions_of(path):
    return [node for node in nodes_of(path) if isinstance(node, FUNCTIONS)]


def floor_of(path):
    return path.relative_to(ROOT).parts[0]


def test_imports_go_down():
    up = [
        (name(path), *found)
        for path in MODULES
        for found in imports(nodes_of(path))
        if found[0] in FLOORS[FLOORS.index(floor_of(path)) + 1 :]
    ]
    assert up == []


def test_commands_import_nothing_heavy_before_they_run():
    heavy = HEAVY | {"synth", "exec", "probes"}
    # `probes.base` is loaded in any case, by the errors of the command line.
    light = "from probes.base import "
    early = [
        (name(path), *found)
        for path in sorted((ROOT / "ccctl" / "commands").rglob("*.py"))
        for lines in [path.read_text().splitlines()]
        for found in imports(run_at_import(tree_of(path)))
        if found[0] in heavy and not lines[found[1] - 1].startswith(light)
    ]
    assert early == []


MOST_LINES = 80


def test_a_function_fits_on_a_screen_or_says_why_not():
    found = []
    for path in MODULES:
        lines = path.read_text().splitlines()
        for node in nodes_of(path):
            if isinstance(node, FUNCTIONS) and node.end_lineno - node.lineno >= MOST_LINES:
                first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
                found += [] if lines[first - 2].startswith("#") else [(name(path), node.name)]
    assert found == []


PACKAGES = {".".join(path.relative_to(ROOT).parts[:-1]) for path in MODULES if path.name == "__init__.py"}


def package_of(path):
    return ".".join(path.relative_to(ROOT).parts[:-1])


def exported(package):
    """Return the exports of a package's stub: (name, its module; none if the name is a module)."""
    stub = ROOT / package.replace(".", "/") / "__init__.pyi"
    tree = ast.parse(stub.read_text()) if stub.exists() else ast.Module([], [])
    return {
        (alias.name, node.module)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def test_packages_are_imported_by_their_doors():
    """Outside a package its names come from the package; the modules at the root of a floor are open."""
    modules = {package_of(path) + "." + path.stem for path in MODULES} - PACKAGES
    found = [
        (name(path), node.module)
        for path in MODULES
        for node in nodes_of(path)
        if isinstance(node, ast.ImportFrom) and node.module in modules
        if (home := node.module.rpartition(".")[0]) not in FLOORS and home != package_of(path)
    ]
    assert found == []


def defined(path):
    """The names at the top level of a module, without those that it imports."""
    for node in tree_of(path).body:
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            yield node.name
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.If, ast.Try)):
            yield from (one.id for one in ast.walk(node) if isinstance(one, ast.Name))


def test_a_class_name_stands_for_one_class():
    homes = {}
    for path in MODULES:
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(name(path))
    assert {one: where for one, where in homes.items() if len(where) > 1} == {}


def test_packages_export_what_others_use():
    """Every export exists, and product, tests, docs or examples import it."""
    folders = ("tests", "benchmarks", "examples")
    others = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    # Parsing all tests would take as long as all that this module does.
    imported = re.compile(r"^\s*from ([\w.]+) import (?:\(([^)]*)\)|([^\n(]*))", re.MULTILINE)
    pages = "".join(path.read_text() for path in [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"])
    users = {}
    for path in MODULES:
        for node in nodes_of(path):
            if isinstance(node, ast.ImportFrom) and node.module != package_of(path):
                users.setdefault(node.module, set()).update(alias.name for alias in node.names)
    for path in others:
        for module, within, behind in imported.findall(path.read_text()):
            names = (one.split() for one in (within or behind).split(","))
            users.setdefault(module, set()).update(one[0] for one in names if one)
    for floor in FLOORS:
        for one, module in exported(floor):
            users.setdefault(f"{floor}.{module}", set()).add(one)
    for package in sorted(PACKAGES):
        folder = ROOT / package.replace(".", "/")
        for one, module in exported(package):
            # A floor's are for programs of others.
            used = package in FLOORS or one in users.get(package, ()) or one in pages
            assert used, f"nobody imports {one} from {package}"
            if module is None:
                assert (folder / f"{one}.py").exists(), (package, one)
            elif (folder / module / "__init__.py").exists():
                assert one in dict(exported(f"{package}.{module}")), (package, one)
            else:
                assert one in defined(folder / f"{module}.py"), (package, one)


# A rank is a process of its own, which has nobody to return to.
RANK = ROOT / "exec" / "launcher" / "worker.py"


def test_stages_neither_print_nor_exit():
    found = []
    for path in MODULES:
        if floor_of(path) == "ccctl" or path == RANK:
            continue
        for call in nodes_of(path):
            if isinstance(call, ast.Call):
                function = ast.unparse(call.func)
                if function in FAR_OFF | {"sys.exit", "os._exit", "sys.stdout.write"}:
                    found.append((name(path), call.lineno, function))
    assert found == []


def test_every_floor_says_that_it_is_typed():
    assert [floor for floor in FLOORS if not (ROOT / floor / "py.typed").exists()] == []


def test_integer_programs_go_through_the_one_door():
    found = []
    for path in MODULES:
        if path.parent.name == "milp":
            continue
        for node in nodes_of(path):
            if isinstance(node, ast.ImportFrom) and node.module == "scipy.optimize":
                found += [(name(path), alias.name) for alias in node.names if alias.name == "milp"]
            if isinstance(node, ast.Attribute) and node.attr in ("LpProblem", "PULP_CBC_CMD", "HiGHS"):
                found.append((name(path), node.attr))
    assert found == []


# Command lines of other programs.
STARTS_PROGRAMS = ("exec/lab/", "exec/cuda/kernel/", "exec/launcher/")


# A recording is made by the command, and lstopo and others have options of their own.
OTHERS = re.compile(r"ccctl detect|lstopo|rocm-smi|detect --record")


def test_libraries_know_no_options_of_the_command_line():
    found = [
        (name(path), node.value)
        for path in MODULES
        if floor_of(path) != "ccctl" and not name(path).startswith(STARTS_PROGRAMS)
        for node in nodes_of(path)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if re.search(r"(?<![\w-])--[a-z]", node.value) and not OTHERS.search(node.value)
    ]
    assert found == []


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
        for lines in [[range(one.lineno, one.end_lineno + 1) for one in functions_of(path)]]
        for node in nodes_of(path)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] in FLOORS
        if any(node.lineno in each for each in lines)
    }
    chosen = sorted(
        name for name in late if not name.startswith(("exec.published", "exec.training.", "ccctl.torch."))
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", IMPORTS_ALONE, *chosen], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
