"""A real Slurm on a lab, where it is installed: ranks are started by srun, and faulty nodes are drained."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from limits import HANG_S

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "slurm_lab.py"
DAEMONS = ("slurmctld", "slurmd", "munged")


@pytest.mark.netns
@pytest.mark.long
@pytest.mark.parametrize("cases", ["without-pmi,adaptive", "accept,accept-resumed"])
def test_an_operators_lines_do_on_a_real_slurm_what_they_should(cases):
    missing = [name for name in DAEMONS if shutil.which(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed")
    line = [sys.executable, "-P", str(SCRIPT), "--only", cases]
    done = subprocess.run(line, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("| right |") == 2
