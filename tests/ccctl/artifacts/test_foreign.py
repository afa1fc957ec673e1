"""Reports from files of other tools, alone and beside ours, as a user sees them."""

import json

import pytest

from ccctl.artifacts import codec
from ccctl.artifacts.foreign import read_any

TEXT = """# nThread 1 nGpus 2 minBytes 1024 maxBytes 1024 warmup iters: 1 iters: 20 agg iters: 1
#  Rank  0 Group  0 Pid  17 on  gpu01 device  0 [0000:07:00] NVIDIA H100
#  Rank  1 Group  0 Pid  18 on  gpu01 device  1 [0000:0b:00] NVIDIA H100
#  size  count   type  redop  root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
   1024    256  float    sum    -1    20.00    0.05    0.05       0    21.00    0.05    0.05       0
"""


@pytest.fixture
def files(samples, tmp_path):
    """A report of ours and the same of nccl-tests, in one folder."""
    codec.write(str(tmp_path / "ours.json"), "report", samples["report"])
    (tmp_path / "nccl.txt").write_text(TEXT)
    return tmp_path


def test_whoever_wrote_it_a_report_is_read(files):
    assert read_any(str(files / "ours.json"), "report").body.executor == "mpi"
    assert read_any(str(files / "nccl.txt"), "report").body.executor == "nccl-tests"


def test_other_artifacts_are_read_as_before(samples, tmp_path):
    path = str(tmp_path / "schedule.json")
    codec.write(path, "schedule", samples["schedule"])
    assert read_any(path).kind == "schedule"


def test_a_table_of_nccl_tests_is_shown_like_ours(run_ccctl, files):
    done = run_ccctl("show", "nccl.txt")
    assert (done.returncode, done.stderr) == (0, "")
    assert "nccl-tests: NCCL" in done.stdout
    assert "20.00" in done.stdout


def test_reports_beside_each_other(run_ccctl, files):
    done = run_ccctl("show", "nccl.txt", "nccl.txt")
    assert (done.returncode, done.stderr) == (0, "")
    cells = done.stdout.splitlines()[-1].split()
    assert cells[:4] == ["all_reduce", "1024", "float32", "sum"]
    assert cells[4:] == ["20.00", "0.05", "20.00", "0.05", "1.00x"]
    # The sample's type has another name, so no row is common, which is said.
    assert "no row is in all reports" in run_ccctl("show", "nccl.txt", "ours.json").stderr


def test_a_picture_of_a_report(run_ccctl, files):
    assert run_ccctl("show", "ours.json", "-o", "bench.svg").returncode == 0
    assert (files / "bench.svg").read_text().startswith("<svg")
    assert run_ccctl("show", "nccl.txt", "-o", "-").stdout.startswith("<svg")
    for name, said in (("bench.gif", "ends in .svg"), ("bench.svg", "-o is for one file")):
        several = ["ours.json"] if name.endswith("gif") else ["ours.json", "nccl.txt"]
        done = run_ccctl("show", *several, "-o", name)
        assert (done.returncode, done.stdout) == (2, "")
        assert said in done.stderr
    done = run_ccctl("show", "--json", "nccl.txt")
    assert json.loads(done.stdout)["executor"] == "nccl-tests"
