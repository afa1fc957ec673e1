"""Where ranks of mpirun and srun meet: by their variables, and for real by mpirun."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from limits import HANG_S

from exec.launcher.starters import mpirun
from exec.training.backend.launcher_rendezvous import Rendezvous, launched
from probes.errors import UnavailableError

OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "PMIX_NAMESPACE": "prterun-a-17@1",
}
MPICH = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALNRANKS": "2"}
SLURM = {
    "SLURM_PROCID": "3",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NODELIST": "gpu[07-08]",
    "SLURM_JOB_ID": "41",
    "SLURM_STEP_ID": "0",
}
STORE = {"MASTER_ADDR": "fd00::1", "MASTER_PORT": "4711"}


def test_ranks_of_one_host_meet_there_at_a_port_of_their_job():
    found = launched(OPEN_MPI)
    assert (found.rank, found.size, found.host) == (1, 2, "127.0.0.1")
    assert launched({**OPEN_MPI, "OMPI_COMM_WORLD_RANK": "0"}).port == found.port
    assert launched({**OPEN_MPI, "PMIX_NAMESPACE": "prterun-a-18@1"}).port != found.port
    assert launched({**MPICH, "MASTER_PORT": "4711"}) == Rendezvous(1, 2, "127.0.0.1", 4711)


def test_ranks_of_a_step_of_slurm_meet_at_its_first_host():
    found = launched(SLURM)
    assert (found.rank, found.size, found.host) == (3, 4, "gpu07")
    assert launched({**SLURM, "SLURM_STEP_ID": "1"}).port != found.port
    assert launched({**SLURM, "SLURM_STEP_NUM_NODES": "1"}).host == "127.0.0.1"


def test_what_mpirun_says_counts_within_a_step_of_slurm():
    inherited = {**SLURM, "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}
    assert launched({**inherited, **OPEN_MPI}) == launched(OPEN_MPI)


def test_an_address_that_is_given_comes_first():
    found = launched({**SLURM, **STORE})
    assert found == Rendezvous(3, 4, "fd00::1", 4711)
    assert found.url == "tcp://[fd00::1]:4711"
    assert launched({**OPEN_MPI, **STORE, "RANK": "0", "WORLD_SIZE": "1"}) is None


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({}, "no launcher"),
        ({**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}, "several hosts"),
        (MPICH, "from those of another"),
    ],
)
def test_what_nothing_tells_is_refused(variables, words):
    with pytest.raises(UnavailableError, match=words):
        launched(variables)


@pytest.mark.mpi
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_a_script_that_mpirun_starts_reduces(tmp_path):
    script = Path(__file__).parents[3] / "helpers" / "torch_ranks.py"
    launcher = mpirun.find()
    line = mpirun.command(launcher, 2, (), [sys.executable, str(script), "launched"])
    told = mpirun.variables(2, str(tmp_path), str(tmp_path))
    done = subprocess.run(
        line,
        env={**os.environ, **told, "CCCTL_PREFER": "ccctl"},
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("reduced") == 2
