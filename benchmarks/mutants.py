"""Change the product at random, one place at a time, and count the changes that its tests notice.

Modules and their mutants are drawn by the seed. A mutant turns a comparison round, negates a condition, makes
a number one larger or smaller, replaces a result by None, or leaves a statement out. The tests of a module
are those of its name and those that import its definitions; they stop at the first failure. A mutant that
takes longer than the limit counts as noticed.

    python -P benchmarks/mutants.py --modules 20 --mutants 6 --seed 7 [--tests FOLDER] [--rows FILE]

With ``--tests`` the tests are those of another checkout, such as one before a change of the suite. With
``--only FILE``, the rows of an earlier run, only the mutants that survived it are tried.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FLOORS = ("probes", "synth", "exec", "ccctl")
# Modules of less have hardly a place to change.
FEWEST_SITES = 12
TURNED = {
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}


def changed(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield (description of the change, new node) for each change of this node."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in TURNED:
        other = copy.deepcopy(node)
        other.ops[0] = TURNED[type(node.ops[0])]()
        yield "comparison turned", other
    if isinstance(node, (ast.If, ast.While, ast.IfExp)):
        opposite = copy.copy(node)
        opposite.test = ast.UnaryOp(ast.Not(), node.test)
        yield "condition negated", opposite
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and node.value is not True:
        yield "one more", ast.Constant(node.value + 1)
        yield "one less", ast.Constant(node.value - 1)
    if isinstance(node, ast.Return) and node.value is not None:
        yield "None returned", ast.Return(ast.Constant(None))
    called = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    if called or isinstance(node, (ast.AugAssign, ast.Raise, ast.Continue)):
        yield "left out", ast.Pass()


def sites(source: str) -> list[tuple[int, str, str]]:
    """Return (line, description of the change, changed source) for each mutant in functions of a module."""
    tree, found = ast.parse(source), []
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    inside = {id(one): one for function in functions for part in function.body for one in ast.walk(part)}
    for parent in ast.walk(tree):
        for field, value in ast.iter_fields(parent):
            if field in ("annotation", "returns"):
                continue
            places = list(enumerate(value)) if isinstance(value, list) else [(None, value)]
            for at, node in places:
                if id(node) not in inside:
                    continue
                for what, other in changed(node):
                    if at is None:
                        setattr(parent, field, other)
                    else:
                        value[at] = other
                    found.append((node.lineno, what, ast.unparse(ast.fix_missing_locations(tree))))
                    if at is None:
                        setattr(parent, field, node)
                    else:
                        value[at] = node
    return found


def tests_of(path: Path, tests: Path, most: int) -> list[str]:
    """Return at most ``most`` files of tests for a module, those of its name first."""
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    package, _, name = module.rpartition(".")
    defined = {
        node.name
        for node in ast.parse(path.read_text()).body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef))
    }
    own = [*(tests / path.relative_to(ROOT).parent).glob(f"test_{name}*.py")]
    for file in sorted(tests.rglob("test_*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and (
                node.module == module
                or (node.module == package and defined & {alias.name for alias in node.names})
            ):
                own.append(file)
    return [str(file.relative_to(tests.parent)) for file in dict.fromkeys(own)][:most]


def noticed(place: Path, files: list[str], limit_s: int) -> tuple[str, float]:
    """Run the tests on the tree in ``place``; return (their outcome, their processor seconds)."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    words = [sys.executable, "-P", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    with subprocess.Popen(
        [*words, "-m", "not mpi and not netns and not long and not alone", *files],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(place), "CI": "true"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s)),
    ) as running:
        try:
            said = running.communicate(timeout=30 * limit_s)[0]
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            said = ""
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if running.returncode in (0, 5):
        return "survived", spent_s
    failed = [line for line in said.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return (failed[0][:120] if failed else f"status {running.returncode}"), spent_s


def main() -> None:
    """Print a line for each mutant, and the number that was noticed."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--modules", type=int, default=20)
    asked.add_argument("--mutants", type=int, default=6)
    asked.add_argument("--seed", type=int, default=7)
    asked.add_argument("--limit", type=int, default=120, help="processor seconds of a mutant")
    asked.add_argument("--files", type=int, default=5, help="the most files of tests of a module")
    asked.add_argument("--under", default="", help="draw only modules of this folder")
    asked.add_argument("--tests", type=Path, default=ROOT / "tests")
    asked.add_argument("--only", type=Path, help="try only the mutants that survived in these rows")
    asked.add_argument("--rows", type=Path)
    given = asked.parse_args()
    draw, count, found = random.Random(given.seed), 0, []
    modules = [path for floor in FLOORS for path in sorted((ROOT / floor).rglob("[a-z]*.py"))]
    modules = [path for path in modules if str(path.relative_to(ROOT)).startswith(given.under)]
    draw.shuffle(modules)
    kept = None
    if given.only is not None:
        rows = map(json.loads, given.only.read_text().splitlines())
        kept = {(row[0], row[1], row[2]) for row in rows if row[3] == "survived"}
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        place = Path(folder) / "tree"
        shutil.copytree(
            ROOT, place, ignore=shutil.ignore_patterns(".git", ".venv", "__pycache__", "tests", "out")
        )
        shutil.copytree(given.tests, place / "tests", ignore=shutil.ignore_patterns("__pycache__"))
        for path in modules:
            if count == given.modules:
                break
            source, files = path.read_text(), tests_of(path, given.tests, given.files)
            every = sites(source)
            if len(every) < FEWEST_SITES or not files:
                continue
            count += 1
            name, target = str(path.relative_to(ROOT)), place / path.relative_to(ROOT)
            for line, what, text in draw.sample(every, given.mutants):
                if kept is not None and (name, line, what) not in kept:
                    continue
                target.write_text(text)
                result, spent_s = noticed(place, files, given.limit)
                found.append(result)
                print(f"{name}:{line} {what}: {result} ({spent_s:.1f} s)", flush=True)
                if given.rows is not None:
                    with given.rows.open("a") as rows_file:
                        rows_file.write(json.dumps([name, line, what, result, round(spent_s, 1)]) + "\n")
            target.write_text(source)
    print(f"{sum(one != 'survived' for one in found)} of {len(found)} mutants of {count} modules noticed")


if __name__ == "__main__":
    main()
