"""`ccctl order` as a user runs it."""

import json
from dataclasses import replace

import pytest
from given_profile import profile_of_links
from gpu_boxes import box

from ccctl.artifacts import codec
from probes.topology import Topology
from synth.nccl_graphs.graph_xml import read_graphs

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
    assert "no order is more than" in text.stdout
    piped = run_ccctl("order", "links.csv", "--size", "4M", "--to", "slurm")
    assert piped.stdout.split() == hosts and "predicted" in piped.stderr


def test_an_order_that_stays_is_said_to(run_ccctl):
    done = run_ccctl("order", "switch:4", "--bandwidth", "10GB/s", "--for", "gloo")
    assert done.returncode == 0 and "the order given stays" in done.stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--for", "opnmpi"], "--for 'opnmpi': unknown library"),
        (["--collective", "broadcast"], "--for openmpi: no algorithm of its broadcast"),
        (["--to", "hostfil"], "--to: expected one of hostfile"),
        (["-o", "hosts"], "-o: the format is missing, which --to names"),
        (["--json", "--to", "slurm"], "--json and --to: one of them to stdout"),
    ],
)
def test_what_cannot_be_asked_for(run_ccctl, words, told):
    done = run_ccctl("order", "switch:4", "--bandwidth", "10GB/s", *words)
    assert done.returncode == 2 and told in done.stderr and done.stdout == ""


@pytest.fixture
def boxes(tmp_path):
    """topology.json of two like hosts and one of another kind."""
    hosts = (box(4, links=[(0, 2), (1, 3)], name="a1"), box(4, links=[(0, 2), (1, 3)], name="a2"))
    other = box(4, links=[(0, 1), (2, 3)], name="b1")
    codec.write(str(tmp_path / "topology.json"), "topology", Topology((*hosts, other)))
    codec.write(str(tmp_path / "one.json"), "topology", Topology(hosts))


def test_a_graph_file_for_each_kind_of_host(run_ccctl, boxes, tmp_path):
    done = run_ccctl(
        "order", "topology.json", "--for", "nccl", "--to", "nccl-graph", "-o", "graph.xml", "--json"
    )
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)["hosts"]
    assert [(one["names"], one["file"]) for one in told] == [
        (["a1", "a2"], "graph.a1.xml"),
        (["b1"], "graph.b1.xml"),
    ]
    for one in told:
        ring, _ = read_graphs((tmp_path / one["file"]).read_bytes(), one["file"])
        assert [list(gpus) for _, gpus in ring.channels] == [
            channel["gpus"] for channel in one["ring"]["channels"]
        ]
        assert one["ring"]["gbs"] <= one["ring"]["most_gbs"] * (1 + 1e-9)


def test_a_graph_of_like_hosts_goes_to_stdout_and_the_figures_aside(run_ccctl, boxes):
    done = run_ccctl("order", "one.json", "--for", "rccl", "--to", "nccl-graph", "--one-host")
    assert done.returncode == 0
    assert done.stdout.startswith('<graphs version="1">') and "<net" not in done.stdout
    assert "a[1-2]: 4 GPUs, nominal rates" in done.stderr and "2.00x what one ring in" in done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["topology.json", "--for", "nccl"], "need a file each"),
        (["dgx-a100:2", "--for", "nccl"], "needs a file that says what is inside a host"),
        (["one.json", "--for", "openmpi"], "only NCCL and RCCL read it"),
    ],
)
def test_graphs_that_cannot_be_asked_for(run_ccctl, boxes, words, told):
    done = run_ccctl("order", *words, "--to", "nccl-graph")
    assert done.returncode == 2 and told in done.stderr and done.stdout == ""


def test_a_profile_is_for_graphs_alone(run_ccctl, boxes):
    done = run_ccctl("order", "one.json", "--measured", "profile.json")
    assert done.returncode == 2 and "--measured and --one-host are for --to nccl-graph" in done.stderr


def test_a_file_for_a_launcher_comes_with_the_line_that_reads_it(run_ccctl, one_way):
    done = run_ccctl("order", "links.csv", "--size", "4M", "--to", "slurm", "-o", "hosts")
    assert done.returncode == 0
    assert "SLURM_HOSTFILE=hosts srun --distribution=arbitrary PROGRAM" in done.stderr


def test_a_rankfile_never_names_a_core_that_is_not_there(run_ccctl, tmp_path):
    pairs = [(src, dst) for src in range(4) for dst in range(4) if src != dst]
    profile = profile_of_links(["vm"] * 4, pairs, 1e-6, 1e-10, transport="mpi")
    for cores in (2, 4):
        ranks = tuple(replace(rank, cores=cores, device="process") for rank in profile.ranks)
        codec.write(str(tmp_path / "p.json"), "profile", replace(profile, ranks=ranks))
        done = run_ccctl("order", "p.json", "--to", "rankfile", "-o", "ranks")
        if cores == 2:
            assert done.returncode == 2 and "vm has 2 cores for 4 ranks" in done.stderr
            assert not (tmp_path / "ranks").exists()
        else:
            assert done.returncode == 0 and "rank 3=vm slot=3" in (tmp_path / "ranks").read_text()
            assert "nothing to gain: ranks has the order given" in done.stderr
