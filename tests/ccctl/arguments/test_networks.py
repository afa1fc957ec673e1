from __future__ import annotations

import gzip
import hashlib
import json
from dataclasses import replace

import pytest

from ccctl import console
from ccctl.arguments.collectives import parse_collectives
from ccctl.arguments.networks import load_network, network_of, parse_ranks
from ccctl.artifacts import codec
from ccctl.errors import CcctlError, DataError, MissingInputError, UsageError
from exec.benchmark import Report
from probes.topology import FabricLink, Gpu, Host, Nic, Topology
from synth.portfolio.request import surviving


def test_ranks():
    assert parse_ranks("0,2, 4-7") == (0, 2, 4, 5, 6, 7)
    for text in ("", "a", "3-1", "1,,2", "-1"):
        with pytest.raises(UsageError, match="--ranks"):
            parse_ranks(text)


@pytest.mark.parametrize(
    ("spec", "options", "ranks", "links"),
    [
        ("dgx-a100:2", {}, 16, 240),
        ("dragonfly:5x4", {"bandwidth": "400,200GB/s"}, 20, 80),
        ("switch:4", {"bandwidth": "1GB/s", "unwind": "1"}, 4, 4),
        ("switch_switch:4x2", {"bandwidth": "1GB/s", "unwind": "3,1"}, 8, 32),
        ("mesh:4x4", {"bandwidth": "1GB/s", "failed": "rank:5"}, 16, 40),
        ("ring:4", {"bandwidth": "1GB/s", "failed": "link:0>1"}, 4, 7),
    ],
)
def test_networks_by_name(spec, options, ranks, links):
    alpha, bandwidth = options.pop("alpha", None), options.pop("bandwidth", None)
    network, digests = load_network(spec, alpha, bandwidth, **options)
    assert (network.ranks, network.links) == (ranks, links)
    assert digests == {}
    assert network.problems() == []


@pytest.mark.parametrize(
    ("spec", "alpha", "bandwidth", "options", "words"),
    [
        ("dgx-a100", None, "1GB/s", {}, "--bandwidth: only for families"),
        ("dgx-a100", None, None, {"unwind": "1"}, "--unwind: only"),
        ("mesh:4", None, None, {}, "bandwidth of its links"),
        ("switch:4", None, "1GB/s", {"unwind": "x"}, "--unwind"),
        ("nothing", None, None, {}, "neither a file"),
        ("mesh:4", None, "1GB/s", {"failed": "rank:9"}, "rank:9"),
        ("dgx-spark", None, None, {}, "at least two ranks"),
        ("rail:6x4/4", None, "1GB/s", {}, "divides 6"),
        ("dgx-h100:6/rail/4", None, None, {}, "divides 6"),
    ],
)
def test_networks_that_make_no_sense(spec, alpha, bandwidth, options, words):
    with pytest.raises(UsageError, match=words):
        load_network(spec, alpha, bandwidth, **options)


@pytest.mark.parametrize(
    ("spec", "hint"),
    [
        ("b400:4", "did you mean 'b300'? Type b300:4"),
        ("gb200:4", "Type gb200-nvl72:4"),
        ("h100:64/rail/2", "Type dgx-h100:64/rail/2"),
        ("b200/8x400:2", "Type dgx-b200/8x400:2"),
        ("mi350x", "Type mi355x"),
        ("spark:3", "Type dgx-spark:3"),
        ("torusses:4x4", "Type torus:4x4 --bandwidth 50GB/s"),
        ("rails", "Type rail:8x8 --bandwidth 50GB/s"),
        ("abacus:4", "machines: dgx-1,"),
    ],
)
def test_an_unknown_name_is_answered_by_the_nearest_and_what_to_type(spec, hint):
    with pytest.raises(UsageError, match="neither a file") as told:
        load_network(spec, None, None)
    assert hint in told.value.hint
    if "--network" in hint:
        name, *costs = hint.partition("--network ")[2].split()
        load_network(name, None, *(costs[1:] or [None]))


@pytest.mark.parametrize("path", ["runs/plan:4", "runs/4", "../b400:4", "b400.json"])
def test_a_path_that_is_not_there_is_no_name(path):
    with pytest.raises(MissingInputError):
        load_network(path, None, None)


def report_of(hosts, each):
    names = tuple(f"h{host}" for host in range(hosts))
    return Report(hosts * each, names, "nccl-tests", "nccl", 5, 20, ())


@pytest.mark.parametrize(
    ("hosts", "each", "spec", "name"),
    [
        (18, 4, "gb200-nvl72", "gb200-nvl72"),
        (36, 4, "nvl72", "nvl72:2"),
        (9, 4, "nvl36", "nvl36"),
        (2, 8, "dgx-h100", "dgx-h100:2"),
        (2, 8, "dgx-h100:2/rail", "dgx-h100:2/rail"),
        (3, 1, "dgx-spark", "dgx-spark:3"),
    ],
)
def test_the_hosts_of_a_report_are_machines_or_their_trays(hosts, each, spec, name):
    assert network_of(report_of(hosts, each), spec).name == name


def kinds(collectives):
    return [(one.kind, one.root, one.members) for one in collectives]


def test_collectives_by_name():
    assert kinds(parse_collectives("all_reduce", 8)) == [("all_reduce", 0, ())]
    assert kinds(parse_collectives("broadcast", 8, members="2,5-6")) == [("broadcast", 2, (2, 5, 6))]
    assert kinds(parse_collectives("reduce@3", 8)) == [("reduce", 3, ())]
    assert kinds(parse_collectives("broadcast@3:0,2-4,all_reduce:5-7,reduce_scatter:0-1", 8)) == [
        ("broadcast", 3, (0, 2, 3, 4)),
        ("all_reduce", 5, (5, 6, 7)),
        ("reduce_scatter", 0, (0, 1)),
    ]


@pytest.mark.parametrize("name", ["allreduce", "AllReduce", "all-reduce", "ALL_REDUCE"])
def test_a_collective_is_understood_as_others_write_it(tmp_path, name):
    assert kinds(parse_collectives(f"{name}:0-3,AllToAll:4-7", 8)) == [
        ("all_reduce", 0, (0, 1, 2, 3)),
        ("all_to_all", 4, (4, 5, 6, 7)),
    ]
    (tmp_path / "wanted.json").write_text(json.dumps({"collective": [{"kind": name}]}))
    assert kinds(parse_collectives(str(tmp_path / "wanted.json"), 8)) == [("all_reduce", 0, ())]


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("all_magic", {}),
        ("broadcast:0-3,all_reduce:4-7", {"members": "0-3"}),
        ("broadcast:0-3", {"members": "0-3"}),
        ("broadcast:x", {}),
    ],
)
def test_collectives_that_make_no_sense(text, options):
    with pytest.raises(UsageError):
        parse_collectives(text, 8, **options)


TOML = """
[[collective]]
kind = "all_reduce"
ranks = "0-3"

[[chunk]]
from = 0
to = [1, 2]
count = 2

[[chunk]]
from = "4-6"
to = 5
reduce = true
"""


def test_a_file_of_collectives_and_chunks(tmp_path):
    path = tmp_path / "wanted.toml"
    path.write_text(TOML)
    listed, own = parse_collectives(str(path), 8)
    assert (listed.kind, listed.members) == ("all_reduce", (0, 1, 2, 3))
    assert own.sets.chunks == 3
    assert own.sets.reduced.tolist() == [False, False, True]
    assert own.sets.wanted().sum(axis=1).tolist() == [0, 2, 2, 0, 0, 1, 0, 0]
    with pytest.raises(UsageError, match="rank 2, which has failed"):
        surviving(own, 8, [2])


def test_the_same_in_json(tmp_path):
    path = tmp_path / "wanted.json"
    path.write_text(json.dumps({"chunk": [{"from": [0], "to": "1-3"}]}))
    (own,) = parse_collectives(str(path), 4)
    assert own.sets.targets.of(0).tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[chunk]]\nfrom = 0\n", r"chunk\[0\].to: expected"),
        ("[[chunk]]\nfrom = 9\nto = 1\n", "no rank 9"),
        ("[[chunk]]\nfrom = 0\nto = 1\ncount = 0\n", "count: expected 1"),
        ('[[chunk]]\nfrom = 0\nto = 1\nreduce = "no"\n', "true or false"),
        ("[[chunk]]\nfrom = 0\nto = 1\nwhen = 3\n", "when: unknown"),
        ('[[collective]]\nkind = "x"\n', r"collective\[0\].kind"),
        ("[[collectives]]\n", "collectives: unknown"),
        ("chunk = 3\n", "list of tables"),
        ("", "expected tables"),
        ("[[[", "expected TOML"),
    ],
)
def test_files_that_make_no_sense(tmp_path, text, words):
    path = tmp_path / "wanted.toml"
    path.write_text(text)
    with pytest.raises(DataError, match=words):
        parse_collectives(str(path), 4)


def test_files_that_are_not_there():
    with pytest.raises(MissingInputError):
        parse_collectives("nowhere.toml", 4)
    with pytest.raises(CcctlError):
        load_network("nowhere.csv", None, None)


def test_synth_on_what_is_left(run_ccctl, tmp_path):
    (tmp_path / "wanted.toml").write_text(TOML.replace("4-6", "3-5").replace("to = 5", "to = 4"))
    asked = ["synth", "--network", "mesh:2x3", "--bandwidth", "1GB/s", "--chunk", "1K", "-o", "s.json"]
    for extra in (
        ["--collective", "wanted.toml", "--method", "greedy"],
        ["--collective", "all_reduce", "--without", "rank:4,link:0>1", "--method", "greedy"],
        ["--collective", "all_to_all", "--ranks", "0,2,5", "--method", "paths"],
        ["--collective", "broadcast:0-2,all_gather:3-5", "--method", "greedy"],
    ):
        done = run_ccctl(*asked, *extra)
        assert done.returncode == 0, done.stderr
        done = run_ccctl("verify", "s.json")
        assert done.returncode == 0, done.stdout + done.stderr
        done = run_ccctl("compile", "s.json", "-o", "p.json")
        assert done.returncode == 0, done.stderr
        assert run_ccctl("verify", "p.json").returncode == 0


@pytest.mark.parametrize(
    "text", ["²", "٣", "0-²", "9" * 5000, "0-99999999999", "65536", "5-", "-", "0--1", ",", "1 2"]
)
def test_ranks_are_bounded_and_written_in_ascii(text):
    with pytest.raises(UsageError, match="--ranks") as caught:
        parse_ranks(text)
    assert len(caught.value.message) < 300


@pytest.mark.parametrize("spec", ["9" * 5000, "dgx-a100:²", "dgx-a100:99999999999", "ring:4/x" * 1000, "\0"])
def test_what_no_network_has_for_a_name_is_refused(spec):
    with pytest.raises(CcctlError) as caught:
        load_network(spec, None, None)
    assert caught.value.message


def test_a_topology_whose_nvlinks_nobody_told_is_doubted_and_a_machine_named(tmp_path, capsys):
    gpu = Gpu("", "nccl_xml", vendor="nvidia", name="A100 SXM4 40GB", method_of={"arch": "table"})
    gpus = tuple(replace(gpu, index=n, bus_id=f"0000:{n:02x}:00.0") for n in range(8))
    nics = (Nic("mlx5_0", "sysfs", physical=True),)
    hosts = tuple(Host(name, "nccl_xml", gpus=gpus, nics=nics) for name in ("n1", "n2"))
    path = str(tmp_path / "topology.json")
    codec.write(path, "topology", Topology(hosts))
    load_network(path, None, None)
    said = capsys.readouterr().err
    assert "n[1-2]: its 8 A100 SXM4 40GB have NVLinks but no source shows them" in said
    assert said.endswith("or use --network dgx-a100:2\n")
    console.summary({"time_s": 1.0})
    assert "no source shows them" in json.loads(capsys.readouterr().out)["findings"][0]
    console.summary({"time_s": 1.0})
    assert "findings" not in capsys.readouterr().out


def test_a_topology_with_a_rate_that_no_link_has_is_refused(tmp_path):
    gpus = tuple(Gpu(f"0000:0{number}:00.0", "test", number, usable=True) for number in range(2))
    links = tuple(
        FabricLink(a.bus_id, b.bus_id, "gpu", "nvlink", 1, "test", gbs=2e151) for a, b in (gpus, gpus[::-1])
    )
    path = tmp_path / "topology.json"
    codec.write(str(path), "topology", Topology((Host("h", "test", 1, gpus=gpus, fabric=links),)))
    with pytest.raises(DataError, match=r"fabric\[0\].gbs: expected a rate from 0"):
        load_network(str(path), None, None)


NVLINKS = "\tGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\tNV4\t X \n"
GPU = (
    '<pci busid="0000:0{n}:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">'
    '<gpu dev="{n}" sm="61" rank="{n}"/></pci>'
)
PCI = (
    '<system version="1"><cpu numaid="0" affinity="3" arch="x86_64" vendor="GenuineIntel" familyid="6" '
    f'modelid="85">{GPU.format(n=0)}{GPU.format(n=1)}</cpu></system>'
)


@pytest.mark.parametrize(("name", "content"), [("topo.txt", NVLINKS), ("nccl-topo.xml", PCI)])
def test_files_of_other_tools_are_networks(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    network, digests = load_network(str(tmp_path / name), None, None)
    assert (network.ranks, network.links, network.name) == (2, 2, name)
    assert digests == {"topology": hashlib.sha256(content.encode()).hexdigest()}


def test_files_of_other_tools_may_be_compressed(tmp_path):
    (tmp_path / "topo.xml.gz").write_bytes(gzip.compress(PCI.encode()))
    network, _ = load_network(str(tmp_path / "topo.xml.gz"), None, None)
    assert (network.ranks, network.links) == (2, 2)


def test_a_folder_is_read_as_a_recording(tmp_path):
    (tmp_path / "recorded").mkdir()
    with pytest.raises(MissingInputError, match=r"recorded: a folder, and no recording .* sysfs\.txt"):
        load_network(str(tmp_path / "recorded"), None, None)


def test_a_text_that_is_neither_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("what I did today\n")
    with pytest.raises(
        DataError, match=r"notes\.txt: expected XML of NCCL or hwloc, or a matrix of nvidia-smi"
    ):
        load_network(str(tmp_path / "notes.txt"), None, None)
