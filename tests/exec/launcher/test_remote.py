"""Ways to reach other hosts: srun in a job of Slurm."""

import subprocess
import sys

import pytest

from exec.launcher.starters.remote import on_host


@pytest.fixture
def srun(tmp_path, monkeypatch):
    """A program of that name on PATH, in a job on gpu1 and gpu2."""
    (tmp_path / "srun").write_text("#!/bin/sh\n")
    (tmp_path / "ssh").write_text("#!/bin/sh\n")
    for name in ("srun", "ssh"):
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("SLURM_JOB_NODELIST", "gpu[1-2]")
    monkeypatch.setenv("HERE", "a,b")
    monkeypatch.setenv("BASH_FUNC_module%%", "() { :; }")
    for name in ("PRTE_MCA_plm_ssh_agent", "HYDRA_LAUNCHER_EXEC"):
        monkeypatch.delenv(name, raising=False)
    return str(tmp_path / "srun")


def test_nodes_of_the_job_are_reached_by_srun_with_what_the_user_has_set(srun, monkeypatch):
    monkeypatch.setenv("TMPDIR", "/scratch/job")
    env = {"HERE": "a,b", "TMPDIR": "/tmp/of-a-run", "KEY": "secret"}
    path, *words = on_host("gpu2", ["python", "-P"], env)
    assert path == srun
    assert "--nodelist=gpu2" in words
    assert words[-3:] == ["--export=HERE", "python", "-P"]


def test_other_hosts_are_reached_as_ever(srun, monkeypatch):
    assert on_host("login1", ["a b"], {})[-2:] == ["login1", "'a b'"]
    monkeypatch.setenv("PRTE_MCA_plm_ssh_agent", srun)
    assert on_host("gpu2", ["a b"], {}) == [srun, "gpu2", "'a b'"]


def test_the_agent_of_a_host_loads_no_numpy():
    """The ranks of its host wait for it."""
    script = "import sys, exec.launcher.starters.host_agent; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
