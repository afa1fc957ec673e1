"""`ccctl synth`, `verify` and `simulate` as a user runs them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from given_profile import profile_of_links
from gpu_boxes import ODD, box
from missing_tools import no_simgrid

from ccctl.artifacts import codec
from probes.link_costs import ProfiledRank, SharedPort
from probes.topology import Gpu, Host, PciDevice, Topology
from synth.traces.chakra import collective_trace

SMALL = ("--network", "mesh:2x3", "--bandwidth", "50GiB/s", "--alpha", "0.5us")
MESH = ("--network", "mesh:4x4", "--bandwidth", "50GiB/s", "--alpha", "0.5us")


def test_summary_of_a_synthesis(run_ccctl):
    done = run_ccctl("synth", *MESH, "--collective", "all_gather", "--chunk", "1MiB", "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["percent_of_optimal"] == pytest.approx(100)
    assert summary["checked"] is True
    assert summary["binding_bound"] == "ingress of rank 0"
    assert summary["sends"] == 16 * 15
    assert summary["time_s"] == pytest.approx(157.25e-6, rel=1e-6)
    assert {"method", "bound_s", "synthesis_s"} <= set(summary)


@pytest.mark.parametrize(
    ("method", "maker", "solved"), [("ilp", "greedy", False), ("adapcc", "adapcc", True)]
)
def test_integer_programs_say_what_they_leave_open(run_ccctl, method, maker, solved):
    asked = ("--network", "mesh:2x3", "--bandwidth", "50GB/s", "--alpha", "0.5us", "--time-limit", "20")
    asked += ("--collective", "broadcast", "--chunk", "1MiB", "--method", method)
    summary = json.loads(run_ccctl("synth", *asked, "--json").stdout)
    # The greedy's is at the bound, so no program is solved: it keeps its maker's name, and none is claimed.
    assert summary["method"] == maker
    assert summary["status"] == "optimal"
    assert (summary["gap_percent"] is not None) == solved
    told = "integer programs were solved to their optimum" in run_ccctl("synth", *asked).stdout
    assert told == solved


def test_integer_programs_by_one_mechanism(run_ccctl):
    asked = ("--network", "ring:4", "--bandwidth", "50GB/s", "--alpha", "0.5us", "--collective", "all_gather")
    asked += ("--chunk", "1MiB", "--time-limit", "20", "--json")
    for mechanism in ("early-termination", "time-clustering"):
        done = run_ccctl("synth", *asked, "--method", "ilp", "--mechanism", mechanism)
        assert json.loads(done.stdout)["percent_of_optimal"] == pytest.approx(100), done.stderr
    wrong = run_ccctl("synth", *asked, "--method", "ilp", "--mechanism", "luck")
    assert (wrong.returncode, "expected one of early-termination" in wrong.stderr) == (
        2,
        True,
    )
    other = run_ccctl("synth", *asked, "--mechanism", "time-clustering")
    assert (other.returncode, "--method ilp" in other.stderr) == (2, True)


def test_without_output_nothing_is_written(run_ccctl, tmp_path):
    done = run_ccctl("synth", *SMALL, "--method", "ring")
    assert done.returncode == 0
    assert "% of optimal, bound: " in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "kind",
    [
        "all_gather",
        "all_reduce",
        "broadcast",
        *(pytest.param(kind, marks=pytest.mark.long) for kind in ("reduce_scatter", "reduce")),
    ],
)
def test_pipes_into_verify_and_simulate(run_ccctl, kind):
    asked = ("--collective", kind, "--size", "1M", "--method", "greedy")
    made = run_ccctl("synth", *SMALL, *asked, "-o", "-")
    assert made.returncode == 0, made.stderr
    judged = run_ccctl("verify", "-", stdin=made.stdout)
    assert judged.returncode == 0
    assert judged.stdout.startswith("proven: ")
    timed = run_ccctl("simulate", "-", "--json", stdin=made.stdout)
    body = json.loads(made.stdout)["body"]
    assert json.loads(timed.stdout)["time_s"] == pytest.approx(body["outcome"]["time_s"])


def test_on_one_host_that_was_measured_steps_cost(run_ccctl, tmp_path):
    pairs = [(src, dst) for src in range(4) for dst in range(4) if src != dst]
    rates = 17.1, 18.3, 18.8, 18.9, 19.5, 17.7, 18.0, 17.5, 18.5, 17.9, 17.9, 19.3
    ways = [(f"core {core}", [dst % 2 == core for _, dst in pairs]) for core in (0, 1)]
    ways += [(f"out {rank}", [src == rank for src, _ in pairs]) for rank in range(4)]
    ways += [(f"in {rank}", [dst == rank for _, dst in pairs]) for rank in range(4)]
    ports = tuple(SharedPort(name, tuple(np.flatnonzero(rows).tolist()), "cores") for name, rows in ways)
    beta = [1e-9 / rate for rate in rates]
    profile = profile_of_links(["host"] * 4, pairs, 7e-7, beta, ports=ports)
    codec.write(str(tmp_path / "profile.json"), "profile", profile)
    found = {}
    for method in ("auto", "ring"):
        asked = ("--network", "profile.json", "--size", "16M", "--method", method, "-o", "s.json")
        assert run_ccctl("synth", *asked).returncode == 0
        found[method] = codec.read(str(tmp_path / "s.json"), "schedule").body
    # Forests of a thousand chunks are a few percent faster by links alone; they took 20 times as long.
    assert found["auto"].sends <= found["ring"].sends


def test_a_profile_takes_the_ports_that_a_topology_declares(run_ccctl, tmp_path):
    wire = {"max_speed_gts": 16.0, "max_width": 16}
    pci = [PciDevice(f"s{switch}", "test", "", "pci0", "switch", **wire) for switch in (0, 1)]
    pci += [PciDevice(f"g{gpu}", "test", f"s{gpu // 2}", "pci0", "device", **wire) for gpu in range(4)]
    gpus = tuple(Gpu(f"g{gpu}", "test", index=gpu) for gpu in range(4))
    host = Host("box", "test", pci=tuple(pci), gpus=gpus)
    codec.write(str(tmp_path / "topology.json"), "topology", Topology((host,)))
    pairs = [(src, dst) for src in range(4) for dst in range(4) if src != dst]
    for device, port in (("cuda:{}", True), ("process", False)):
        ranks = [ProfiledRank(rank, host.name, device.format(rank)) for rank in range(4)]
        profile = profile_of_links(ranks, pairs, 5e-6, 1 / 20e9, residual=0.01, transport="cuda")
        codec.write(str(tmp_path / "p.json"), "profile", profile)
        asked = ("--network", "p.json", "--topology", "topology.json", "--method", "ring")
        done = run_ccctl("synth", *asked, "-o", "s.json")
        assert (done.returncode == 0) == port, done.stderr
        if port:
            network = codec.read(str(tmp_path / "s.json"), "schedule").body.network
            assert any("PCIe" in name for name in network.ports)
        else:
            assert "not on a GPU" in done.stderr
    refused = run_ccctl("synth", *MESH, "--topology", "topology.json")
    assert (refused.returncode, "not the file of a profile" in refused.stderr) == (2, True)


def test_verify_lists_what_is_wrong_and_exits_with_1(run_ccctl, tmp_path):
    run_ccctl("synth", *SMALL, "--size", "1M", "--method", "greedy", "-o", "s.json")
    document = json.loads((tmp_path / "s.json").read_text())
    for column in ("chunk", "link", "op"):
        document["body"][column] = document["body"][column][1:]
    (tmp_path / "s.json").write_text(json.dumps(document))
    judged = run_ccctl("verify", "s.json", "--json")
    assert judged.returncode == 1
    assert json.loads(judged.stdout)["ok"] is False
    assert any("ends without the complete chunk" in f for f in json.loads(judged.stdout)["findings"])
    assert "this schedule is wrong" in judged.stderr


def test_simulate_at_another_size_and_on_another_network(run_ccctl, tmp_path):
    run_ccctl("synth", *SMALL, "--size", "1M", "--method", "greedy", "-o", "s.json")
    once, twice = (
        json.loads(run_ccctl("simulate", "s.json", "--size", size, "--json").stdout)
        for size in ("64M", "128M")
    )
    assert twice["time_s"] == pytest.approx(2 * once["time_s"], rel=0.05)
    run_ccctl(
        "synth", "--network", "mesh:2x2", "--bandwidth", "1GB/s", "--method", "ring", "-o", "small.json"
    )
    refused = run_ccctl("simulate", "s.json", "--network", "small.json")
    assert refused.returncode == 2
    assert "it has 4 ranks, the schedule 6" in refused.stderr


def test_the_same_seed_writes_the_same_body(run_ccctl, tmp_path):
    for name in ("a.json", "b.json"):
        asked = ("--network", "mesh:2x2", *SMALL[2:], "--seed", "5")
        run_ccctl("synth", *asked, "-o", name, SOURCE_DATE_EPOCH="0")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("--network", "mesh:4x4"), 2, "needs the bandwidth"),
        (("--network", "mesh:4x4", "--bandwidth", "fast"), 2, "--bandwidth: expected a rate"),
        (("--network", "mesh:4x4", "--bandwidth", "1GB/s", "--alpha", "5"), 2, "--alpha: expected a time"),
        (("--network", "nonsense"), 2, "neither a file nor a network that has a name"),
        (("--network", "missing.json", "--bandwidth", "1GB/s"), 66, "missing.json: there is no such file"),
        (("--network", "."), 66, ".: a folder, and no recording of a machine: sysfs.txt is not in it"),
        (("--network", "missing.json"), 66, "missing.json: there is no such file"),
        ((*MESH, "--collective", "all_sum"), 2, "unknown collective"),
        ((*MESH, "--size", "1M", "--chunk", "1K"), 2, "exclude each other"),
        ((*MESH, "--chunks", "4"), 2, "needs the size of a chunk"),
        ((*MESH, "--method", "magic"), 2, "unknown method"),
        ((*MESH, "--method", "TACOS"), 2, "TACOS's search is 'greedy'"),
        ((*MESH, "--solver", "magic"), 2, "--solver magic: unknown solver"),
        (("--network", "dgx-a100:24", "--method", "adapcc"), 2, "columns for flows"),
        ((*MESH, "--root", "77", "--collective", "reduce"), 2, "there is no rank 77"),
        ((*MESH, "-o", "no/such/folder.json"), 73, "no/such/folder.json"),
    ],
)
def test_refuses_and_says_why(run_ccctl, tmp_path, arguments, status, words):
    done = run_ccctl("synth", *arguments)
    assert done.returncode == status
    assert words in done.stderr
    assert done.stdout == "" or "-o" in arguments
    assert list(tmp_path.iterdir()) == []


def test_a_sweep_gives_the_schedule_of_each_range_and_every_later_stage_reads_it(run_ccctl, tmp_path):
    path = str(tmp_path / "table.json")
    network = ("--network", "ring:3", "--alpha", "1us", "--bandwidth", "50GB/s")
    done = run_ccctl("synth", *network, "--sizes", "1K:16M", "-f", "64", "--json", "-o", path)
    told = json.loads(done.stdout)
    assert [row["size_bytes"] for row in told["sizes"]] == [1 << 10, 1 << 16, 1 << 22, 1 << 24]
    assert (told["ranges"][0]["from_bytes"], told["ranges"][-1]["to_bytes"]) == (1 << 10, 1 << 24)
    assert json.loads(run_ccctl("verify", path, "--json").stdout)["ok"]
    assert json.loads(run_ccctl("simulate", path, "--json").stdout)["sizes"] == told["sizes"]
    one = json.loads(run_ccctl("simulate", path, "--size", "64K", "--json").stdout)
    assert one["time_s"] == told["sizes"][1]["time_s"]


@pytest.mark.parametrize(
    "more", [("--sizes", "1K"), ("--sizes", "1M:1K"), ("--sizes", "1K:1M", "--size", "1M")]
)
def test_a_sweep_that_makes_no_sense_is_a_usage_error(run_ccctl, more):
    done = run_ccctl("synth", "--network", "dgx-a100:1", *more)
    assert done.returncode == 2
    assert "--sizes" in done.stderr


@pytest.mark.skipif(bool(no_simgrid()), reason=no_simgrid())
def test_simgrid_judges_a_schedule(run_ccctl, tmp_path):
    network = ("--network", "switch:3", "--bandwidth", "1GB/s", "--alpha", "1us")
    run_ccctl("synth", *network, "--size", "3M", "--method", "greedy", "-o", "s.json")
    told = json.loads(run_ccctl("simulate", "s.json", "--with", "simgrid", "--json").stdout)
    assert told["simgrid"]["time_s"] == pytest.approx(told["time_s"], rel=1e-9)
    assert told["simgrid"]["shared_time_s"] > 0
    lines = run_ccctl("simulate", "s.json", "--with", "simgrid").stdout.splitlines()
    assert "take turns at " in lines[-2] and "share them evenly" in lines[-1]


def test_simgrid_judges_only_schedules(run_ccctl, tmp_path):
    asked = ("--network", "ring:3", "--bandwidth", "1GB/s", "--size", "3M", "--method", "ring")
    run_ccctl("synth", *asked, "-o", "s.json")
    run_ccctl("compile", "s.json", "-o", "p.json")
    for words, why in (
        (("p.json", "--with", "simgrid"), "only schedules can be judged"),
        (("s.json", "--with", "astra"), "expected simgrid, found 'astra'"),
    ):
        refused = run_ccctl("simulate", *words)
        assert refused.returncode == 2 and why in refused.stderr


@pytest.mark.parametrize("chosen", [["--without", "rank:3"], ["--ranks", "0-2,4-7"]])
def test_how_many_ranks_take_part_is_told_of_how_many(run_ccctl, tmp_path, chosen):
    path = tmp_path / "schedule.json"
    costs = ["--bandwidth", "1GB/s", "--alpha", "1us", "--chunk", "1K", "--jobs", "1"]
    made = run_ccctl("synth", "--network", "switch:8", *costs, *chosen, "--method", "greedy", "-o", str(path))
    assert "7 of 8 ranks, " in made.stderr + made.stdout
    assert "on 7 of 8 ranks: " in run_ccctl("show", str(path)).stdout
    assert "on 7 of 8 ranks: " in run_ccctl("verify", str(path)).stdout
    told = run_ccctl("synth", "--network", "switch:8", *costs, *chosen, "--method", "greedy", "--json")
    assert [json.loads(told.stdout)[name] for name in ("ranks", "ranks_taking_part")] == [8, 7]


def test_uneven_collectives_go_through_the_pipeline(run_ccctl, tmp_path):
    asked = ("--network", "mesh:2x2", "--bandwidth", "10GB/s", "--collective", "all_to_all")
    counts = "0,4M,0,1M,2M,0,0,0,0,0,0,0,1M,1M,1M,0"
    done = run_ccctl("synth", *asked, "--counts", counts, "-o", "uneven.json", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["collective"] == "uneven all_to_all"
    for command in (("verify",), ("simulate",), ("compile", "-o", "program.json"), ("show",)):
        done = run_ccctl(command[0], "uneven.json", *command[1:])
        assert done.returncode == 0, done.stderr
    assert "uneven all_to_all" in run_ccctl("verify", "program.json").stdout
    done = run_ccctl("synth", *asked, "--counts", counts, "--size", "4M")
    assert done.returncode == 2
    assert "--size: --counts already says how large each block is" in done.stderr
    document = json.loads((tmp_path / "uneven.json").read_text())
    document["body"]["collective"]["custom"]["blocks"]["size_bytes"][2] = 5
    (tmp_path / "uneven.json").write_text(json.dumps(document))
    done = run_ccctl("verify", "uneven.json")
    assert done.returncode == 65
    assert "blocks.chunks: expected at least 1 for a block with data" in done.stderr


def test_tensors_move_to_another_layout(run_ccctl, tmp_path):
    (tmp_path / "move.toml").write_text(
        """
        source = { ranks = "0,1", placements = ["shard(0)"] }
        target = { ranks = [3, 2], placements = ["shard(1)"] }
        [[tensor]]
        shape = [1000, 300]
        count = 2
        """
    )
    asked = (
        "--network",
        "fully_connected:4",
        "--bandwidth",
        "10GB/s",
        "--collective",
        "redistribute:move.toml",
    )
    done = run_ccctl("synth", *asked, "-o", "move.json")
    assert done.returncode == 0, done.stderr
    for command in (
        ("verify", "move.json"),
        ("compile", "move.json", "-o", "program.json"),
        ("simulate", "move.json"),
    ):
        done = run_ccctl(*command)
        assert done.returncode == 0, done.stderr
    done = run_ccctl("synth", *asked, "--size", "4M")
    assert done.returncode == 2
    assert "--size: the file already says what moves" in done.stderr


def test_groups_of_a_step_lose_to_each_other(run_ccctl, tmp_path):
    (tmp_path / "step.toml").write_text(
        """
        [[group]]
        kind = "broadcast"
        ranks = ["0,1", "0,1"]
        size = "1M"
        """
    )
    asked = ("--network", "mesh:2", "--bandwidth", "10GB/s", "--collective", "step.toml")
    done = run_ccctl("synth", *asked, "-o", "step", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [group["name"] for group in found["groups"]] == ["broadcast 0", "broadcast 1"]
    assert all(1.9 < group["lost"] < 2.1 for group in found["groups"])
    assert [price["part"] for price in found["prices"]] == ["link 0-1"]
    assert run_ccctl("verify", "step/group-1.json").returncode == 0
    done = run_ccctl("synth", *asked, "--size", "4M")
    assert done.returncode == 2
    assert "--size: each group of the file has its own" in done.stderr
    wrong = '[[group]]\nkind = "all_red"\nsize = 3.5\nranks = "0-9"\nwhen = 1\n'
    (tmp_path / "step.toml").write_text(wrong)
    done = run_ccctl("synth", *asked)
    assert done.returncode == 65
    for reason in ("group[0].when: unknown", "group[0].kind", "group[0].ranks: there is no rank 2"):
        assert reason in done.stderr


def test_the_groups_of_a_step_come_from_its_chakra_traces(run_ccctl, tmp_path):
    pytest.importorskip("google.protobuf")
    folder = tmp_path / "traces"
    folder.mkdir()
    for rank in range(2):
        (folder / f"step.{rank}.et").write_bytes(collective_trace("all_gather", 1 << 19))
    asked = ("synth", "--network", "mesh:2", "--bandwidth", "10GB/s", "--collective", "traces")
    done = run_ccctl(*asked, "-o", "step", "--json")
    assert done.returncode == 0, done.stderr
    (group,) = json.loads(done.stdout)["groups"]
    assert (group["name"], group["size_bytes"], group["release_s"]) == ("all_gather 0", 1 << 20, 0)
    assert "no computation states how long it takes" in done.stderr
    assert run_ccctl("verify", "step/group-0.json").returncode == 0
    (folder / "step.0.et").write_bytes(collective_trace("all_reduce", 1 << 19))
    (folder / "step.9.et").write_bytes(b"")
    done = run_ccctl(*asked)
    assert done.returncode == 65
    assert "step.9.et: expected a name such as step.3.et" in done.stderr
    (folder / "step.9.et").unlink()
    done = run_ccctl(*asked)
    assert done.returncode == 65
    assert "rank 0 waits in all_reduce (node 0) for rank 1" in done.stderr


def test_stock_nccl_needs_nothing_where_its_choices_are_as_good(run_ccctl, tmp_path):
    done = run_ccctl("synth", "--network", "dgx-a100:2", "--for", "nccl", "-o", str(tmp_path / "nccl"))
    assert done.returncode == 0, done.stderr
    *rows, last = done.stdout.splitlines()
    assert last == (
        "NCCL's own choices are best on dgx-a100:2: no order, graph, algorithm or protocol that it loads is "
        "2 % faster"
    )
    assert rows[0].startswith("all_reduce  NCCL takes") and len(rows) > 3
    assert "nothing is written there" in done.stderr
    assert not (tmp_path / "nccl").exists()


@pytest.mark.parametrize("network", [("t.json",), ("links.csv", "--topology", "t.json")])
def test_stock_nccl_gets_files_and_an_environment_that_names_them(run_ccctl, tmp_path, monkeypatch, network):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "nccl"
    codec.write("t.json", "topology", Topology((box(**ODD["4 GPUs, bridges crossed"]),)), {})
    pairs = ((src, dst) for src in range(4) for dst in range(4) if src != dst)
    links = "".join(f"a:{src},a:{dst},1us,25GB/s\n" for src, dst in pairs)
    (tmp_path / "links.csv").write_text(f"src,dst,alpha,bandwidth\n{links}")
    done = run_ccctl("synth", "--network", *network, "--for", "nccl", "-o", str(folder), "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    names = [one["name"] for one in found["files"]]
    assert (names[0], names[-1]) == ("graph.xml", "nccl.env")
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)
    assert found["files"][0]["gain"] > 1.2
    assert f"NCCL_GRAPH_FILE={folder}/graph.xml\n" in (folder / "nccl.env").read_text()


@pytest.mark.parametrize(
    ("more", "words"),
    [(("--size", "1M"), "--size: leave it out with --for nccl"), (("-o", "-"), "NCCL loads several files")],
)
def test_stock_nccl_refuses_what_it_cannot_use(run_ccctl, more, words):
    done = run_ccctl("synth", "--network", "dgx-a100:2", "--for", "nccl", *more)
    assert done.returncode == 2
    assert words in done.stderr


SQUARE = ("--network", "fully_connected:4", "--bandwidth", "50GB/s", "--alpha", "2us")


def test_verify_runs_a_file_in_its_runtime(run_ccctl, tmp_path):
    schedule, xml, plan = (str(tmp_path / name) for name in ("s.json", "p.xml", "p.json"))
    assert run_ccctl("synth", *SQUARE, "--size", "64K", "--method", "ring", "-o", schedule).returncode == 0
    assert run_ccctl("compile", schedule, "--target", "msccl", "-o", xml).returncode == 0
    done = run_ccctl("verify", xml, "--run")
    assert done.returncode == 0, done.stderr
    assert "ran as MSCCL's interpreter would: 8 launches" in done.stdout
    assert "0 of " in done.stdout
    sized = json.loads(run_ccctl("verify", xml, "--run", "--size", "64K", "--json").stdout)
    assert sized["run"]["elements"] == 2 * 2 * 4 * 16384
    assert sized["run"]["wrong"] == 0
    assert run_ccctl("compile", schedule, "--to", "mscclpp", "-o", plan).returncode == 0
    assert "ran as MSCCL++'s executor would: 9 launches" in run_ccctl("verify", plan, "--run").stdout
    refused = run_ccctl("verify", schedule, "--run")
    assert refused.returncode == 2
    assert "only programs, MSCCL XML and plans run" in refused.stderr
    assert "it is for --run" in run_ccctl("verify", xml, "--size", "1M").stderr


@pytest.mark.parametrize(
    ("runtime", "variable"),
    [("msccl", "MSCCL_XML_FILES="), ("rccl", "MSCCL_ALGO_DIR="), ("mscclpp", "MSCCLPP_EXECUTION_PLAN_DIR=")],
)
def test_a_sweep_for_a_runtime_is_a_folder_of_files(run_ccctl, tmp_path, runtime, variable):
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "old.xml").write_text("")
    asked = ("synth", *SQUARE, "--for", runtime)
    done = run_ccctl(*asked, "--sizes", "1K:16M", "-f", "16384", "-o", "files", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    names = [one["file"] for one in told["ranges"]]
    assert sorted(path.name for path in (tmp_path / "files").iterdir()) == sorted([*names, "old.xml"])
    assert "also old.xml: write to a folder of its own" in done.stderr
    assert next(iter(told["environment"].values()))[0].startswith(variable)
    assert (f"MSCCL_ALGO_DIR={tmp_path}/files" in str(told["environment"])) == (runtime != "mscclpp")
    assert (told["ranges"][0]["from_bytes"], told["ranges"][-1]["to_bytes"]) == (1 << 10, 16 << 20)
    verified = run_ccctl("verify", f"files/{names[0]}")
    assert verified.returncode == 0, verified.stderr
    (tmp_path / "one").mkdir()
    one = run_ccctl(*asked, "--method", "ring", "--size", "64K", "-o", f"one/{names[0]}")
    assert one.returncode == 0, one.stderr
    assert f"export {variable}{tmp_path}/one" in one.stderr
    both = f"# for Azure/msccl-executor-nccl:\nexport MSCCL_ALGO_DIR={tmp_path}/one\n"
    assert (both in one.stderr) == (runtime == "msccl")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--sizes", "1K:1M", "--for", "msccl", "-o", "-"), "a file for each range"),
        (("--size", "1M", "--for", "msccl", "-o", "."), "is a folder"),
    ],
)
def test_outputs_that_cannot_hold_the_files_are_refused_at_once(run_ccctl, options, told):
    done = run_ccctl("synth", *SQUARE, *options)
    assert done.returncode != 0
    assert told in done.stderr
