"""`ccctl tune`: rules that Open MPI loads, and tuner files of nccl-tests' tables."""

import json

import pytest

from ccctl.commands.tune import _gains
from exec.library_rules import OWN
from exec.library_rules.openmpi import COLLECTIVES, read_rules

LOG = """#  Rank  0 Group  0 Pid  17 on  gpu01 device  0 [0000:07:00] NVIDIA H100
#  Rank  1 Group  0 Pid  18 on  gpu01 device  1 [0000:08:00] NVIDIA H100
# all_reduce_perf
#  size  count   type  redop  root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
   1024    256  float    sum    -1    {small}    {slow:.2f}    {slow:.2f}       0
   1048576 262144 float  sum    -1    {large}    {fast:.2f}    {fast:.2f}       {wrong}
"""


def log(small, large, wrong=0):
    """The table of a setting: microseconds of a small and of a large size."""
    return LOG.format(small=small, large=large, slow=1.024 / small, fast=1048.576 / large, wrong=wrong)


@pytest.fixture
def logs(tmp_path):
    """Two tables of nccl-tests, one faster for small sizes, one for large ones."""
    (tmp_path / "tree.log").write_text(log(10.0, 900.0))
    (tmp_path / "ring.log").write_text(log(20.0, 300.0))
    return ("tree:ll:4=tree.log", "ring:simple:16=ring.log")


@pytest.mark.mpi
def test_open_mpi_is_measured_and_its_rules_are_written(run_ccctl, tmp_path):
    (tmp_path / "old.conf").write_text("1\n0\n1\n64\n1\n0 3 0 0\n")
    done = run_ccctl(
        *("tune", "-n", "2", "--sizes", "1K:8K", "--budget", "0.02", "--collective", "all_reduce,all_gather"),
        *("--merge", "old.conf", "-o", "rules.conf", "--json"),
    )
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "rules.conf").read_text()
    table = read_rules(text, "rules.conf")
    assert "Dynamic rules of coll/tuned" in text
    assert table.keys() == {COLLECTIVES["all_reduce"], COLLECTIVES["all_gather"]}
    assert {2, 64} <= table[COLLECTIVES["all_gather"]].keys()
    told = json.loads(done.stdout)
    rows = told["collectives"]["all_reduce"]
    # On a busy machine a size may take far longer than a larger one.
    left_out = told["left_out"].get("all_reduce", [])
    assert {1024, 8192} <= {row["size_bytes"] for row in rows} | {*left_out}
    assert rows
    assert all(row["time_s"] > 0 and row["untouched_s"] > 0 for row in rows)


def test_rules_that_gain_nothing_need_not_be_loaded():
    own = {"algorithm": OWN, "untouched_s": 2.0, "time_s": 2.0, "size_bytes": 1024}
    better = {"algorithm": "ring", "untouched_s": 2e-3, "time_s": 1e-3, "size_bytes": 4096}
    *_, last = _gains({"all_reduce": [own, own]}, "X=1", merged=False)
    assert last == "the rules need not be loaded: they gain nothing"
    first, each, last = _gains({"all_reduce": [own, better]}, "X=1", merged=False)
    assert each == "  4K: ring 1 ms, library 2 ms"
    assert first.startswith("all_reduce: another algorithm at 1 of 2 sizes, up to 2.00x")
    assert last == "to load the rules: export X=1"
    assert [*_gains({"all_reduce": [own]}, "X=1", merged=True)][-1] == last


def test_a_setting_with_wrong_results_is_not_tuned_by(run_ccctl, logs, tmp_path):
    (tmp_path / "ring.log").write_text(log(20.0, 300.0, wrong=96))
    done = run_ccctl("tune", "--for", "nccl", *logs, "-o", "tuner.csv")
    assert done.returncode == 1
    assert "ring.log: all_reduce of 1048576 bytes (float32): 96 wrong elements out of place" in done.stderr
    assert not (tmp_path / "tuner.csv").exists()


def test_tables_of_nccl_tests_become_a_tuner_file(run_ccctl, logs, tmp_path):
    done = run_ccctl("tune", "--for", "nccl", *logs, "-o", "tuner.csv")
    assert done.returncode == 0, done.stderr
    lines = [line for line in (tmp_path / "tuner.csv").read_text().splitlines() if not line.startswith("#")]
    assert lines == [
        "allreduce,0,32767,tree,ll,4,1,2,-1,-1",
        "allreduce,32768,18446744073709551615,ring,simple,16,1,2,-1,-1",
    ]
    assert done.stderr.splitlines()[:2] == [
        "allreduce, below 32K: tree:ll, 4 channels",
        "allreduce, from 32K on: ring:simple, 16 channels",
    ]


def test_what_wins_at_all_sizes_can_be_an_environment(run_ccctl, logs):
    done = run_ccctl("tune", "--for", "rccl", logs[1], "--to", "env")
    assert done.stdout == 'NCCL_ALGO="AllReduce:ring"\nNCCL_PROTO="AllReduce:simple"\n'
    assert run_ccctl("tune", "--for", "rccl", *logs, "--to", "env").returncode == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("--for", "mvapich"),
        ("--for", "nccl"),
        ("--for", "nccl", "ring.log"),
        ("--for", "openmpi", "ring:simple:16=ring.log"),
        ("--to", "csv", "-n", "2"),
        ("--json", "-n", "2"),
        ("--collective", "broadcast", "-n", "2"),
    ],
)
def test_what_says_nothing_is_refused(arguments, run_ccctl, logs):
    assert run_ccctl("tune", *arguments).returncode == 2


def test_a_network_is_not_tuned_and_the_message_says_what_plans_it(run_ccctl):
    done = run_ccctl("tune", "--network", "dgx-a100:2")
    assert done.returncode == 2 and "measures, it does not plan" in done.stderr


OSU = """$ mpirun -np 8 -x UCC_TL_UCP_TUNE osu_allreduce -f

# OSU MPI Allreduce Latency Test v7.4
# Datatype: MPI_FLOAT.
# Size       Avg Latency(us)
1024       {small:.2f}
1048576    {large:.2f}
"""


def test_tables_of_the_osu_benchmarks_become_a_configuration_of_ucc(run_ccctl, tmp_path):
    for name, small, large in (("knomial", 10.0, 900.0), ("ring", 20.0, 300.0), ("default", 10.1, 600.0)):
        (tmp_path / f"{name}.log").write_text(OSU.format(small=small, large=large))
    logs = [f"{name}={name}.log" for name in ("knomial", "ring", "default")]
    done = run_ccctl("tune", "--for", "ucc", *logs, "-o", "ucc.conf")
    assert done.returncode == 0, done.stderr
    lines = [line for line in (tmp_path / "ucc.conf").read_text().splitlines() if not line.startswith("#")]
    assert lines == ["UCC_TL_UCP_TUNE=allreduce:host:32768-inf:[8]:inf:@ring"]
    assert "UCC_CONFIG_FILE" in done.stderr
    wrong = run_ccctl("tune", "--for", "ucc", "ring=ring.log", "--merge", "ucc.conf")
    assert wrong.returncode == 2
    assert "written whole" in wrong.stderr
    unknown = run_ccctl("tune", "--for", "ucc", "bruck=ring.log")
    assert unknown.returncode == 2
    assert "no such algorithm of all_reduce" in unknown.stderr
