"""`ccctl order` as a user runs it."""

import json

import pytest

LINKS = "src,dst,bandwidth,alpha\n"


@pytest.fixture
def one_way(tmp_path):
    """links.csv of four hosts, one pair of which is slow one way."""
    rows = [
        f"h{src}:0,h{dst}:0,{'10Mbit/s' if (src, dst) == (0, 1) else '100Mbit/s'},100us"
        for src in range(4)
        for dst in range(4)
        if src != dst
    ]
    (tmp_path / "links.csv").write_text(LINKS + "\n".join(rows) + "\n")


def test_the_summary_and_the_files(run_ccctl, one_way, tmp_path):
    done = run_ccctl("order", "links.csv", "--size", "4M", "--json", "--to", "hostfile", "-o", "hosts")
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert (told["library"], told["algorithm"], told["collective"]) == ("openmpi", "ring", "all_reduce")
    assert told["exact"] and told["changed"] and told["gain"] == told["most_gain"] > 9
    hosts = told["hosts"]
    assert (tmp_path / "hosts").read_text() == "".join(f"{host} slots=1\n" for host in hosts)
    text = run_ccctl("order", "links.csv", "--size", "4M")
    assert "openmpi:ring, all_reduce of 4M on links.csv: 4 hosts, 4 ranks" in text.stdout
    assert "no order gains more than" in text.stdout
    piped = run_ccctl("order", "links.csv", "--size", "4M", "--to", "slurm")
    assert piped.stdout.split() == hosts and "predicted" in piped.stderr


def test_an_order_that_stays_is_said_to(run_ccctl):
    done = run_ccctl("order", "switch:4", "--bandwidth", "10GB/s", "--for", "gloo")
    assert done.returncode == 0 and "the order stays as it comes" in done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--for", "opnmpi"], "--for 'opnmpi': unknown library"),
        (["--collective", "broadcast"], "--for openmpi: no algorithm of its broadcast"),
        (["--to", "hostfil"], "--to: expected one of hostfile"),
        (["-o", "hosts"], "-o: --to says in which format"),
        (["--json", "--to", "slurm"], "--json and --to: one of them to stdout"),
    ],
)
def test_what_cannot_be_asked_for(run_ccctl, words, told):
    done = run_ccctl("order", "switch:4", "--bandwidth", "10GB/s", *words)
    assert done.returncode == 2 and told in done.stderr and done.stdout == ""
