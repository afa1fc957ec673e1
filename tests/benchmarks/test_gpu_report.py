"""The report of a machine with GPUs: parts go on after failures, end at their limits, and nothing is lost."""

import sys

from gpu_report import Part, Result, carried_out, parts, report, table


def shell(text, limit_s=20.0):
    return Part(text, (sys.executable, "-c", text), limit_s)


def test_a_part_that_fails_keeps_its_output():
    done = carried_out(shell("print('half'); raise SystemExit(3)"), 60)
    assert (done.outcome, done.output) == ("failed, exit 3", "half\n")


def test_a_part_that_does_not_end_is_ended_with_what_it_printed():
    done = carried_out(shell("print('begun', flush=True)\nimport time; time.sleep(600)", 2.0), 60)
    assert (done.outcome, done.output) == ("out of time", "begun\n")


def test_a_part_without_time_is_not_begun():
    assert carried_out(shell("raise SystemExit(1)"), 1.0).outcome == "out of time"


def test_the_report_has_every_part_and_the_fastest_instances(tmp_path):
    rows = [
        {"size_bytes": 1024, "protocol": by, "instances": instances, "seconds": seconds, "copies_s": 1e-6}
        for by, instances, seconds in (("Simple", 1, 4e-6), ("Simple", 2, 2e-6), ("LL", 1, 8e-6))
    ]
    assert table(rows)[2:] == [
        "| 1024 | Simple | 2 | 2.0 | 1.0 | 0.50 |",
        "| 1024 | LL | 1 | 8.0 | 1.0 | 0.12 |",
    ]
    told = report([Result(shell("pass"), 0, 1.0, "all well"), Result(shell("x"), None, 0.0, "")], tmp_path)
    assert "| pass | passed | 1 |" in told and "| x | out of time | 0 |" in told and "all well" in told


def test_nccl_is_a_peer_only_where_ranks_have_a_gpu_each(tmp_path):
    def commands(gpus):
        return [" ".join(part.command) for part in parts(gpus, tmp_path)]

    assert not any("--vs nccl" in one for one in commands(1))
    assert sum("--vs nccl" in one and "-n 8" in one for one in commands(8)) == 6
