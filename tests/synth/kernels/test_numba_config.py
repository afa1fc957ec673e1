"""The settings of numba in a working directory do not count; those of the environment do."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("yaml")

ROOT = Path(__file__).parents[3]

_ASKED = """
import sys
{first}
import numba
from numba.core import config
config.reload_config()
print(config.DISABLE_JIT, config.OPT, "yaml" in sys.modules and sys.modules["yaml"])
"""


@pytest.mark.parametrize("first", ["import synth.kernels.compiled_loop", "import exec.mpi.reduce"])
def test_file_of_the_working_directory_is_not_read(first: str, tmp_path: Path) -> None:
    (tmp_path / ".numba_config.yaml").write_text("disable_jit: 1\nopt: '0'\n")
    disabled, level, _ = _answer(first, tmp_path)
    assert disabled == "0" and "_OptLevel(0)" not in level
    # One variable that counts shows that those of the environment do.
    if "exec" not in first:
        assert _answer(first, tmp_path, NUMBA_DISABLE_JIT="1")[0] == "1"


def test_yaml_can_be_imported_afterwards(tmp_path: Path) -> None:
    (tmp_path / ".numba_config.yaml").write_text("disable_jit: 1\n")
    assert _answer("import synth.kernels, yaml; yaml.safe_load('a: 1')", tmp_path)[2].startswith("<module")
    assert _answer("import synth.kernels, numba, yaml; yaml.safe_load('a: 1')", tmp_path)[0] == "0"


def test_numba_that_was_imported_before_reads_it_no_more(tmp_path: Path) -> None:
    first = "import numba, os; os.chdir(sys.argv[1]); import synth.kernels; os.environ['NUMBA_OPT'] = '2'"
    (tmp_path / "hostile").mkdir()
    (tmp_path / "hostile" / ".numba_config.yaml").write_text("disable_jit: 1\n")
    assert _answer(first, tmp_path, argument="hostile")[0] == "0"


@pytest.mark.parametrize(("first", "known"), [("", False), ("import coverage; ", True)])
def test_coverage_is_imported_only_where_it_measures(first: str, known: bool, tmp_path: Path) -> None:
    pytest.importorskip("coverage")
    asked = f"{first}import synth.kernels, numba.misc.coverage_support as support"
    asked += "; print(support.coverage_available, 'coverage' in sys.modules, end=' ')"
    said = _answer(asked, tmp_path)
    assert said[:2] == [str(known)] * 2


def _answer(first: str, folder: Path, argument: str = "", **settings: str) -> list[str]:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "PYTHONPATH": str(ROOT), **settings}
    ran = subprocess.run(
        [sys.executable, "-P", "-c", _ASKED.format(first=first), argument],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout.split(maxsplit=2)
