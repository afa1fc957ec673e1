"""`ccctl show` as a user runs it: every kind, from a file and from a pipe, and what is wrong."""

import json
from dataclasses import replace

import pytest
from missing_tools import no_png

from ccctl.artifacts import codec
from synth.schedules import Range

SAYS = {
    "topology": ["host"],
    "profile": ["0", "1"],
    "schedule": ["all_gather on 4 ranks: 4M in 4 chunks of 1M", "ring:4", "% of optimal", "rank 3", "copy"],
    "periodic": [
        "all_reduce on 3 ranks: 64K",
        "ring:3",
        "% of optimal",
        "a period every",
        "repeated",
        "copy",
    ],
    "symmetric": [
        "all_reduce on 6 ranks",
        "torus:3x2",
        "% of optimal",
        "6 by renumbering",
        "reduce",
    ],
    "program": [
        "pass on: broadcast on 2 ranks",
        "rank 0, threadblock 0",
        "sends to 1",
        "receives from 0",
        "o[0]",
    ],
    "selection": ["all_gather on", "1 range", "1M", "ring", "50.0", "2 ms"],
    "history": [
        "2 runs of 2 links",
        "1970-01-01 00:01:00Z  drift: 1 → 0",
        "1 → 0     2       0.5    1   0.5",
    ],
    "model": [
        "two layers: 3 tensors of 2 layers, 5.004M",
        "made up",
        "last         1  1M      2 ms     4 ms",
    ],
    "fusion": [
        "two layers by dear, buffer 25M: 1 bucket",
        "4 ranks",
        "first.weight  last.weight",
        "of at most",
    ],
    "groups": ["8 ranks in 2 racks", "representatives, period 4", "{0,4} {1-3} {5-7}", "rho 0.1975"],
    "training": [
        "mlp: 4 layers",
        "2 ranks on 1 host",
        "ddp:4M",
        "100.00",
        "0.500",
        "95.0 %",
        "0.40",
        "a note",
    ],
    "tuning": ["two layers by dear: bo from 1M to 100M, 2 trials", "10M     250 ms", "best"],
    "health": [
        "2 hosts answered, 1 did not",
        "node1: xid 79 of 3b:00.0: lost",
        "differs: driver: 570.124.06 on node1; 565.57.01 on node2",
        "not read: kernel log on node2: needs root",
        "no answer: node3: no answer to ssh",
    ],
    "samples": ["4 samples of 1 measurement", "round trips", "messages back to back"],
    "certificate": [
        "accepted with remarks: 1 remark on 2 of 12 hosts",
        "1. remark: governor",
        "an all_reduce of 8 KiB takes 31 us now, and 29 us once it is repaired, by the model",
    ],
    "report": ["all_reduce on 2 ranks", "1024", "1000.00", "25.10", "0.90x", "1.00x", "#wrong"],
}


@pytest.mark.parametrize("kind", codec.KINDS)
def test_every_kind_is_drawn(kind, samples, run_ccctl, tmp_path):
    path = tmp_path / "a.json"
    codec.write(str(path), kind, samples[kind])
    done = run_ccctl("show", path)
    assert (done.returncode, done.stderr) == (0, "nothing wrong was found\n" * (kind == "topology"))
    assert "\x1b" not in done.stdout
    for words in SAYS[kind]:
        assert words in done.stdout
    assert run_ccctl("show", "-", stdin=path.read_text()).stdout == done.stdout


@pytest.mark.parametrize("kind", codec.KINDS)
def test_json_outlines_what_is_there(kind, samples, run_ccctl, tmp_path):
    path = tmp_path / "a.json"
    codec.write(str(path), kind, samples[kind])
    found = json.loads(run_ccctl("show", "--json", path).stdout)
    assert found["kind"] == kind
    assert found["sha256"] == codec.read(str(path)).sha256


def test_what_is_cut_is_said(samples, run_ccctl, tmp_path):
    codec.write(str(tmp_path / "s.json"), "schedule", samples["schedule"])
    codec.write(str(tmp_path / "p.json"), "program", samples["program"])
    schedule = run_ccctl("show", "--lines", 3, "s.json").stdout
    assert "… and 1 more ranks; --lines 4 shows all" in schedule
    assert "… and 9 more sends; --lines 12 shows all" in schedule
    assert "… and 2 more steps; --lines 3 shows all" in run_ccctl("show", "--lines", 1, "p.json").stdout


def test_the_timeline_shows_who_is_busy(samples, run_ccctl, tmp_path):
    codec.write(str(tmp_path / "s.json"), "schedule", samples["schedule"])
    lanes = [
        line.split()[2]
        for line in run_ccctl("show", "s.json").stdout.splitlines()
        if line.startswith("rank ")
    ]
    assert len(lanes) == 4
    # In a ring every rank sends and receives all the time.
    assert all(set(lane) == {"#"} for lane in lanes)


@pytest.mark.parametrize(
    ("content", "status", "message"),
    [
        (None, 66, "there is no such file"),
        ("", 65, "empty, expected an artifact"),
        ('{"schema": "ccctl/pro', 65, "truncated"),
        ('{"schema": "ccctl/profile/9", "body": {}}', 65, "version 1, the file is version 9"),
        ('{"schema": "ccctl/profile/1", "body": {}}', 65, "body.links: missing"),
    ],
)
def test_bad_input_is_named_and_nothing_is_printed(content, status, message, run_ccctl, tmp_path):
    path = tmp_path / "bad.json"
    if content is not None:
        path.write_text(content)
    done = run_ccctl("show", path)
    assert (done.returncode, done.stdout) == (status, "")
    assert all(line.startswith((f"ccctl: {path}: ", "hint: ")) for line in done.stderr.splitlines())
    assert message in done.stderr


def test_a_selection_is_plotted(samples, run_ccctl, tmp_path):
    codec.write(str(tmp_path / "table.json"), "selection", samples["selection"])
    assert run_ccctl("show", "table.json", "-o", "table.svg").returncode == 0
    content = (tmp_path / "table.svg").read_text()
    assert content.startswith("<svg")
    assert "ring, 4 chunks" in content
    assert "proven bound" in content


def test_ranges_of_sizes_meet_in_one_spelling(samples, run_ccctl, tmp_path):
    """A range that ends before 319K ends there: 326655 and 319K would look as if they overlapped."""
    selection = samples["selection"]
    ranges = (Range(1 << 10, (319 << 10) - 1, 0), Range(319 << 10, 1 << 20, 0))
    codec.write(str(tmp_path / "table.json"), "selection", replace(selection, ranges=ranges))
    lines = run_ccctl("show", "table.json").stdout.splitlines()[2:4]
    assert [line.split()[:2] for line in lines] == [["1K", "<319K"], ["319K", "1M"]]


@pytest.mark.parametrize("name", ["machine.svg", "machine.png"])
def test_pictures_are_written_as_the_name_says(name, samples, run_ccctl, tmp_path):
    if name.endswith(".png") and no_png():
        pytest.skip(no_png())
    codec.write(str(tmp_path / "t.json"), "topology", samples["topology"])
    done = run_ccctl("show", "t.json", "-o", name)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    begins = b"<svg" if name.endswith(".svg") else b"\x89PNG"
    assert (tmp_path / name).read_bytes().startswith(begins)


def test_other_names_are_refused(samples, run_ccctl, tmp_path):
    codec.write(str(tmp_path / "t.json"), "topology", samples["topology"])
    done = run_ccctl("show", "t.json", "-o", "machine.pdf")
    assert done.returncode == 2
    assert "expected a name that ends in .svg or .png" in done.stderr
    assert not (tmp_path / "machine.pdf").exists()


def test_the_help_names_every_kind(run_ccctl):
    told = " ".join(run_ccctl("show", "--help").stdout.split())
    assert [kind for kind in codec.KINDS if kind not in told] == []
