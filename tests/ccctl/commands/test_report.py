"""`ccctl report` as a user runs it: every kind, what cannot be read, and a page that loads nothing."""

import json
import os
import re
from dataclasses import replace

import pytest
from certificates import refused
from limits import HANG_S
from slow_host import fill, profile_with_slow_host

from ccctl.artifacts import codec


@pytest.fixture(scope="module")
def folder(samples, tmp_path_factory):
    """One artifact of each kind, of a cluster with a slow host, and a file that is none."""
    found = tmp_path_factory.mktemp("out")
    fill(found, samples, (1 << 16, 1 << 20))
    return found


@pytest.fixture(scope="module")
def page(folder, _warm_commands, tmp_path_factory):
    """The page about these files, which is the slowest to write."""
    place = tmp_path_factory.mktemp("page")
    words, variables = ["report", str(folder), "-o", "report.html"], os.environ | {"SOURCE_DATE_EPOCH": "0"}
    done = _warm_commands.run(words, "", place, HANG_S, variables=variables)
    assert done.returncode == 0, done.stderr
    return (place / "report.html").read_text()


def test_the_slow_host_comes_first_and_what_cannot_be_read_is_a_finding(folder, run_ccctl):
    done = run_ccctl("report", folder, "--json")
    assert done.returncode == 0
    told = json.loads(done.stdout)
    assert told["artifacts"] == len(codec.KINDS) and told["unread"] == 1
    assert "node3 sends at" in told["findings"][0]["text"] and told["findings"][0]["severe"]
    (unread,) = [one for one in told["findings"] if one["what"] == "unread"]
    assert unread["source"] == str(folder / "broken.json")
    assert "body.ranks: expected a list" in unread["text"]
    # A file of notes beside them is no broken artifact.
    assert not any("notes.txt" in one["source"] for one in told["findings"])


def test_faults_of_an_acceptance_are_severe_and_its_remarks_are_not(run_ccctl, tmp_path):
    codec.write(str(tmp_path / "c.json"), "certificate", refused())
    found = json.loads(run_ccctl("report", "c.json", "--json").stdout)["findings"]
    assert [(one["what"], one["severe"]) for one in found] == [("fault", True)] * 3 + [("doubtful", False)]
    assert found[0]["text"] == refused().culprits[0].text
    page = run_ccctl("report", "c.json", "-o", "-").stdout
    assert "<h2>Acceptance</h2>" in page and "cost of 3 culprits" in page


def test_links_left_out_are_not_slow_and_stand_below_the_slow_host(run_ccctl, tmp_path):
    slow = profile_with_slow_host()
    told = ("left out: 16 links not measured", *slow.findings, "host node9 is not measured: no answer")
    kinds = ("doubtful", "slow", "incomplete")
    codec.write(str(tmp_path / "p.json"), "profile", replace(slow, findings=told, finding_kinds=kinds))
    found = json.loads(run_ccctl("report", "p.json", "--json").stdout)["findings"]
    assert [(one["what"], one["severe"]) for one in found] == [
        ("slow", True),
        ("incomplete", True),
        ("doubtful", False),
    ]
    assert "node3 sends at" in found[0]["text"] and found[2]["text"].startswith("left out")


def test_the_page_loads_nothing_and_tells_the_findings_before_all_else(page):
    assert re.findall(r"(?:src(?:set)?=|@import|url\()", page) == []
    assert set(re.findall(r"href='(.)", page)) == {"#"}
    assert "default-src 'none'" in page and "<script" not in page
    body = page.partition("<body>")[2]
    assert body.index("node3 sends at") < body.index("<svg")
    assert {"Links", "Schedules", "Benchmarks", "Training"} <= set(re.findall(r"<h2>(\w+)</h2>", body))
    assert "proven bound" in body


def test_the_same_files_give_the_same_bytes(page, folder, run_ccctl):
    again = run_ccctl("report", folder, "-o", "-", SOURCE_DATE_EPOCH="0").stdout
    assert page == again and page.startswith("<!DOCTYPE html>")


def test_words_of_files_are_text_and_not_marks(samples, run_ccctl, tmp_path):
    odd = replace(samples["profile"], findings=("<script>alert(1)</script>",))
    codec.write(str(tmp_path / "a<b>.json"), "profile", odd)
    page = run_ccctl("report", "a<b>.json", "-o", "-").stdout
    assert "<script>" not in page and "&lt;script&gt;" in page and "a<b>" not in page


def test_no_times_are_shown_of_what_is_not_proven(samples, run_ccctl, tmp_path):
    wrong = replace(samples["schedule"], chunk=samples["schedule"].chunk * 0)
    codec.write(str(tmp_path / "wrong.json"), "schedule", wrong)
    page = run_ccctl("report", "wrong.json", "-o", "-").stdout
    assert "not proven" in page and "<svg" not in page


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["nowhere"], 66, "nowhere"),
        (["."], 66, "no artifact"),
        ([], 2, "FOLDER|FILE"),
        ([".", "-o", "nowhere/a.html"], 73, "nowhere"),
    ],
)
def test_what_cannot_be_is_told(arguments, status, said, run_ccctl):
    done = run_ccctl("report", *arguments)
    assert done.returncode == status
    assert said in done.stderr


def test_a_schedule_without_bounds_is_refused_with_its_path(run_ccctl, samples, tmp_path):
    codec.write(str(tmp_path / "s.json"), "schedule", samples["schedule"])
    content = json.loads((tmp_path / "s.json").read_text())
    content["body"]["outcome"]["bounds"] = []
    (tmp_path / "s.json").write_text(json.dumps(content))
    done = run_ccctl("report", "s.json", "-o", "r.html")
    assert "Traceback" not in done.stderr
    assert "body.outcome.bounds: expected one or more" in (tmp_path / "r.html").read_text()


RUN = """# nThread 1 nGpus 1 minBytes 8 maxBytes 16 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1
#  Rank  0 Group  0 Pid   4242 on     gpu01 device  0 [0x07] NVIDIA H100
...
#  Rank  9 Group  0 Pid   4251 on     gpu02 device  0 [0x07] NVIDIA H100
#  size  count   type  redop  root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
"""
ROW = "  1048576  262144  float  sum  -1  100.0  10.49  18.87  0  100.0  10.49  18.87  7\n"


def test_logs_that_cannot_be_judged_are_findings_and_wrong_results_come_first(run_ccctl, tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "hung.txt").write_text(RUN)
    (tmp_path / "logs" / "wrong.log").write_text(RUN + ROW)
    (tmp_path / "logs" / "validation.out").write_text(
        "# OSU MPI Allreduce Latency Test v7.5\n# Size  Avg Latency(us)  Validation\n8  1.0  Fail\n"
    )
    (tmp_path / "logs" / "notes.txt").write_text("rack 4 is loud\n")
    found = json.loads(run_ccctl("report", "logs", "--json").stdout)["findings"]
    assert [(one["what"], one["source"]) for one in found] == [
        ("wrong", "logs/validation.out"),
        ("wrong", "logs/wrong.log"),
        ("unread", "logs/hung.txt"),
    ]
    assert "validation failed: line 3" in found[0]["text"]
    assert "7 wrong elements of 1048576 bytes in place" in found[1]["text"]
    assert "and no row" in found[2]["text"]
