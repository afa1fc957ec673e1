"""A real Slurm on a lab, where it is installed: a job's nodes are reached by srun, and lone tasks refused."""

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
def test_ranks_of_an_adaptive_run_are_started_on_the_nodes_of_a_job():
    missing = [name for name in DAEMONS if shutil.which(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed")
    line = [sys.executable, "-P", str(SCRIPT), "--only", "without-pmi,adaptive"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("| right |") == 2
