"""Compiled loops are kept between processes, and compiled anew when what they call has changed."""

import ast
import functools
import os
import platform
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from numba_forks import new_python, numba_forks

from synth.kernels.compiled_loop import BASELINES, _baseline

CALLED = """
from synth.kernels.compiled_loop import compiled

@compiled
def called(x):
    return x + {addend}
"""
CALLER = """
from called import called
from synth.kernels.compiled_loop import compiled

@compiled
def caller(x):
    return 2 * called(x)

if __name__ != "__main__":
    print(caller(1), sum(caller.stats.cache_hits.values()))
"""
HELPER = """
from numba.extending import register_jitable

@register_jitable
def called(x):
    return x + {addend}
"""
SORTING = """
import numpy as np
from synth.kernels.compiled_loop import compiled

@compiled
def nothing(x):
    return x

@compiled
def ordered(values):
    return np.sort(values)

@compiled
def order(values):
    return np.argsort(values)

values = np.arange(50.0)[::-1].copy()
"""


def run(folder, code="import caller", *, new=False, **variables):
    """Run the code with the modules of ``folder``, in a Python of its own where numba reads settings."""
    environment = os.environ | {"XDG_CACHE_HOME": str(folder / "cache"), "CCCTL_COMPILE_ALL_LOOPS": "1"}
    code = f"import sys; sys.path[:0] = [{str(folder)!r}, {str(Path.cwd())!r}]; {code}"
    done = (new_python if new else numba_forks().run)(code, environment | variables)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_loop_is_compiled_anew_when_one_that_it_calls_in_another_file_has_changed(tmp_path):
    (tmp_path / "caller.py").write_text(CALLER)
    (tmp_path / "called.py").write_text(CALLED.format(addend=10))
    assert run(tmp_path) == ["22", "0"]
    assert run(tmp_path) == ["22", "1"]
    (tmp_path / "called.py").write_text(CALLED.format(addend=1000))
    assert run(tmp_path) == ["2002", "0"]


@pytest.mark.long
def test_a_loop_is_compiled_anew_when_a_number_that_its_module_imports_has_changed(tmp_path):
    (tmp_path / "caller.py").write_text(
        CALLER.replace("2 *", "FACTOR *").replace("from called", "from factor import FACTOR\nfrom called")
    )
    (tmp_path / "called.py").write_text(CALLED.format(addend=10))
    for factor, expected in ((2, ["22", "0"]), (2, ["22", "1"]), (3, ["33", "0"])):
        (tmp_path / "factor.py").write_text(f"FACTOR = {factor}")
        assert run(tmp_path) == expected


@pytest.mark.long
def test_a_loop_is_compiled_anew_when_a_helper_that_numba_was_taught_has_changed(tmp_path):
    (tmp_path / "caller.py").write_text(CALLER)
    for addend in (10, 20):
        (tmp_path / "called.py").write_text(HELPER.format(addend=addend))
        assert run(tmp_path) == [str(2 + 2 * addend), "0"]
        assert run(tmp_path) == [str(2 + 2 * addend), "1"]


@pytest.mark.long
def test_equal_sources_share_their_loops_wherever_they_lie(tmp_path):
    for place in ("here", "there"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "caller.py").write_text(CALLER)
        (tmp_path / place / "called.py").write_text(CALLED.format(addend=10))
        (tmp_path / place / "cache").symlink_to(tmp_path / "cache")
    (tmp_path / "cache").mkdir()
    assert run(tmp_path / "here") == ["22", "0"]
    for source in (tmp_path / "there").glob("*.py"):
        os.utime(source, (0, 0))
    assert run(tmp_path / "there") == ["22", "1"]


@pytest.fixture
def shipped(tmp_path):
    """A read-only folder of shipped loops of `caller`; and how to run with it, with an empty cache."""
    (tmp_path / "caller.py").write_text(CALLER)
    (tmp_path / "called.py").write_text(CALLED.format(addend=10))
    name, _ = BASELINES[platform.machine()]
    made = run(tmp_path, new=True, NUMBA_CPU_NAME=name, NUMBA_CPU_FEATURES="")
    assert made == ["22", "0"]
    folder = tmp_path / "shipped"
    (tmp_path / "cache" / "ccctl" / "numba").rename(folder)
    folder.chmod(0o555)
    there = "from pathlib import Path; from synth.kernels import stored_loops; stored_loops.SHIPPED_LOOPS = "
    code = f"{there}Path({str(folder)!r}); import caller"
    yield folder, lambda **variables: run(tmp_path, code, **variables)
    folder.chmod(0o755)


def test_loops_that_come_with_the_package_are_used_and_not_copied(shipped, tmp_path):
    _, again = shipped
    assert again() == ["22", "1"]
    assert not (tmp_path / "cache" / "ccctl" / "numba").exists()
    assert again(CCCTL_HIDE_SHIPPED_LOOPS="1") == ["22", "0"]


@pytest.mark.long
def test_a_damaged_loop_of_the_package_is_compiled_into_the_cache(shipped):
    folder, again = shipped
    for path in folder.iterdir():
        path.write_bytes(path.read_bytes()[:-1] + b"!")
    assert again() == ["22", "0"]
    assert again() == ["22", "1"]


@pytest.mark.long
def test_a_loop_of_the_package_for_other_sources_is_not_used(shipped, tmp_path):
    _, again = shipped
    (tmp_path / "called.py").write_text(CALLED.format(addend=1000))
    assert again() == ["2002", "0"]


def test_loops_of_the_package_need_a_processor_that_can_run_them():
    name, needed = BASELINES["x86_64"]
    can = ",".join(f"+{feature}" for feature in sorted(needed))
    linux = "x86_64-unknown-linux-gnu"
    assert _baseline((linux, "znver4", f"{can},+avx512f,-amx")) == (linux, name, "")
    assert _baseline((linux, name, "")) == (linux, name, "")
    for feature in needed:
        assert _baseline((linux, "old", can.replace(f"+{feature}", f"-{feature}"))) is None
    assert _baseline(("riscv64-linux-gnu", "generic", can)) is None


@pytest.mark.long
def test_processes_that_need_a_loop_at_once_wait_for_one_that_compiles_it(tmp_path):
    (tmp_path / "caller.py").write_text(CALLER)
    (tmp_path / "called.py").write_text(CALLED.format(addend=10))
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(functools.partial(run, new=True), [tmp_path] * 4))
    assert [value for value, _ in found] == ["22"] * 4
    assert sorted(hits for _, hits in found) == ["0", "1", "1", "1"]


@pytest.mark.long
def test_a_loop_whose_compiler_ended_before_it_was_kept_is_compiled_by_the_next(tmp_path):
    (tmp_path / "caller.py").write_text(CALLER)
    (tmp_path / "called.py").write_text(CALLED.format(addend=10))
    start = f"import os, sys; sys.path[:0] = [{str(tmp_path)!r}, {str(Path.cwd())!r}]; "
    dies = (
        "from synth.kernels import compiled_loop as made; "
        "made._Cache.save_overload = lambda *a: os._exit(9); import caller"
    )
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache"), "CCCTL_COMPILE_ALL_LOOPS": "1"}
    killed = subprocess.run([sys.executable, "-P", "-c", start + dies], env=environment)
    assert killed.returncode == 9
    assert run(tmp_path) == ["22", "0"]


@pytest.mark.long
def test_loops_that_different_processes_compiled_do_not_share_their_helpers(tmp_path):
    (tmp_path / "sorting.py").write_text(SORTING)
    run(tmp_path, "from sorting import *; ordered(values)")
    # As many numbered functions before the one that sorts as the other process had.
    run(tmp_path, "from sorting import *; nothing(1), nothing(1.0), nothing(True), order(values)")
    found = run(tmp_path, "from sorting import *; ordered(values); print(*order(values))")
    assert found == [str(49 - place) for place in range(50)]


@pytest.mark.long
def test_locked_and_open_arrays_share_one_machine_code(tmp_path):
    (tmp_path / "sorting.py").write_text(SORTING)
    run(tmp_path, "from sorting import *; ordered(values)")
    locked = "values.setflags(write=False); print(ordered(values)[0], *ordered.stats.cache_hits.values())"
    assert run(tmp_path, f"from sorting import *; {locked}") == ["0.0", "1"]
    both = "ordered(values.copy()); ordered(values); print(len(ordered.signatures))"
    assert run(tmp_path, f"from sorting import *; values.setflags(write=False); {both}") == ["1"]


def test_integers_of_any_width_share_one_machine_code(tmp_path):
    (tmp_path / "called.py").write_text(CALLED.format(addend=10))
    (tmp_path / "caller.py").write_text(
        CALLER.replace("2 * called(x)", "called(x[0]) + called(len(x)) + called(1)")
    )
    loop = "from caller import caller; from called import called; import numpy as np"
    counted = "print(caller(np.array([4], np.int32)), len(called.signatures))"
    (tmp_path / "caller.py").write_text((tmp_path / "caller.py").read_text().partition("if __name__")[0])
    assert run(tmp_path, f"{loop}; {counted}") == ["36", "1"]


def test_loops_can_be_left_to_python(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    loop = CALLER.partition("if __name__")[0]
    (tmp_path / "caller.py").write_text(f"{loop}print(type(caller).__name__, caller(1))")
    (tmp_path / "called.py").write_text(CALLED.format(addend=10))
    assert run(tmp_path, new=True) == ["function", "22"]


FIRST = """
import numpy as np
from called import called
from synth.kernels.compiled_loop import all_compiled, compiled

@compiled
def last(words):
    word = words[-1]
    for _ in range(3):
        word = called(word) * np.uint64(2**63 + 1)
    return word

few, many = np.full(3, 2**63 + 5, np.uint64), np.full(10**6, 2**63 + 5, np.uint64)
"""


def first(folder, code):
    """Run with an empty cache a loop that Python may carry out, too."""
    (folder / "called.py").write_text(CALLED.format(addend="np.uint64(1)").replace("from", FROM_NUMPY, 1))
    loop = FIRST[FIRST.index("@compiled") : FIRST.index("few, many")]
    copies = [loop.replace("last", name) for name in ("other", "third")]
    (folder / "first.py").write_text("".join((FIRST, *copies)))
    return run(folder, f"from first import *; {code}", CCCTL_COMPILE_ALL_LOOPS="")


FROM_NUMPY = "import numpy as np\nfrom"


def test_python_carries_out_a_loop_that_has_little_to_do_with_the_same_result(tmp_path):
    count = "len(last.signatures), len(called.signatures)"
    found = first(tmp_path, f"print(repr(last(few)), {count}); print(repr(last(many)), {count})")
    assert found[0] == found[3]
    assert found[1:3] == ["0", "0"] and found[4:] == ["1", "1"]
    # Machine code is used whoever made it.
    assert first(tmp_path, "print(last(few), len(last.signatures))") == [found[0], "1"]


def test_a_loop_that_has_kept_python_busy_as_long_as_a_compiler_would_is_compiled(tmp_path):
    soon = "from synth.kernels import compiled_loop as made"
    soon += "; made._COMPILING_S_PER_BYTE = made._FIRST_S_PER_ELEMENT = 0"
    once = "last(few); print(len(last.signatures))"
    assert first(tmp_path, f"{soon}; {once}; {once}") == ["0", "1"]


def test_python_carries_out_a_loop_with_larger_tables_where_earlier_calls_show_that_it_is_quick(tmp_path):
    """And a loop that was asked for is compiled, though there is little to do."""
    known = "last(many[:400]); last(many[:2000]); print(len(last.signatures))"
    new = "other(many[:2000]); print(len(other.signatures))"
    asked = "made = all_compiled(); made.__enter__(); third(few); print(len(third.signatures))"
    assert first(tmp_path, f"{known}; {new}; {asked}") == ["0", "1", "1"]


def test_no_compiled_loop_has_a_comprehension():
    """numba drops writes to the arrays of a tuple as dead code in a function with a comprehension."""
    comprehensions = (ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)
    sources = [path for path in (Path(__file__).parents[3] / "synth").rglob("*.py")]
    with_loops = [path for path in sources if "@compiled" in path.read_text()]
    assert len(with_loops) > 10
    for path in with_loops:
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef) and "compiled" in map(
                ast.unparse, function.decorator_list
            ):
                found = [node.lineno for node in ast.walk(function) if isinstance(node, comprehensions)]
                assert not found, f"{path}: {function.name}: {found}"
