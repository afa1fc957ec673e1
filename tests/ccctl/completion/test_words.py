"""The words that complete are those that the registries know."""

import pytest
import typer

from ccctl.arguments.networks import load_network
from ccctl.completion import words
from exec.launcher.starters.order_files import FORMATS
from exec.library_rules.openmpi import COLLECTIVES as TUNED
from exec.peers.registry import LIBRARIES, parse_peers
from exec.program.dtypes import DTYPES, REDOPS
from exec.training.workloads.request import BACKENDS, MODELS, MODES
from synth.collective import KINDS
from synth.fusion.methods import METHODS as FUSION_METHODS
from synth.fusion.model import shapes
from synth.fusion.tuning import STRATEGIES
from synth.groups.planner import PATTERNS
from synth.milp.backends import SOLVERS
from synth.networks.dgx import pod_names
from synth.networks.families import names
from synth.portfolio.attempts import METHODS
from synth.rank_order.algorithms import LIBRARIES as ORDERED


@pytest.mark.parametrize(
    ("listed", "known"),
    [
        (words.BACKENDS, BACKENDS),
        (words.COLLECTIVES, KINDS),
        (words.DTYPES, DTYPES),
        (words.FAMILIES, names()),
        (words.FUSION_METHODS, FUSION_METHODS),
        (words.LAYER_TABLES, shapes()),
        (words.MACHINES, pod_names()),
        (words.METHODS, ("auto", *METHODS, "periodic")),
        (words.MODELS, MODELS),
        (words.MODES, MODES),
        (
            words.LIBRARY_ALGORITHMS,
            [f"{library}:{name}" for library, kinds in ORDERED.items() for name in kinds["all_reduce"]],
        ),
        (words.ORDERED_COLLECTIVES, {kind for kinds in ORDERED.values() for kind in kinds}),
        (words.ORDER_FORMATS, (*FORMATS, "nccl-graph")),
        (words.PATTERNS, PATTERNS),
        (words.REDOPS, REDOPS),
        (words.SOLVERS, SOLVERS),
        (words.TUNED_COLLECTIVES, TUNED),
        (words.TUNERS, STRATEGIES),
    ],
)
def test_the_words_are_those_of_the_registry(listed, known):
    assert sorted(listed) == sorted(known)


# Several racks of 72 GPUs have tens of thousands of links; those of 36 are built in the same way.
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.long] * name.endswith("-nvl72"))
        for name in (*words.FAMILIES, *words.MACHINES)
    ],
)
def test_the_shapes_are_of_networks_that_there_are(name):
    for shape in words.SHAPES[name]:
        costs = () if name in words.MACHINES else ("1us", "50GB/s")
        network, _ = load_network(f"{name}:{shape}", *(costs or (None, None)))
        assert network.ranks > 1


@pytest.mark.parametrize(
    ("incomplete", "expected"),
    [
        ("all_r", ["all_reduce"]),
        ("allr", ["allreduce"]),
        ("AllR", ["AllReduce"]),
        ("ALLR", ["ALLREDUCE"]),
        ("reduce-s", ["reduce-scatter"]),
        ("allre-", ["allre-duce"]),
        ("x", []),
    ],
)
def test_a_spelling_is_gone_on_with(incomplete, expected):
    assert words.spelled("all_reduce", "reduce_scatter")(incomplete) == expected


def test_every_peer_is_one():
    assert {name.partition(":")[0] for name in words.PEERS} == set(LIBRARIES)
    assert parse_peers(",".join(words.PEERS)) == words.PEERS


def test_several_words_complete_after_the_last_comma():
    assert words.several_of("mpi", "gloo", "nccl")("mpi,") == ["mpi,gloo", "mpi,nccl"]
    assert words.several_of("mpi", "gloo")("gloo,mpi,g") == []


@pytest.mark.parametrize(
    ("incomplete", "expected"),
    [
        ("", ["gpu1", "gpu2", "gpu3", "login"]),
        ("gpu1:4,", ["gpu1:4,gpu2", "gpu1:4,gpu3", "gpu1:4,login"]),
        ("gpu[1,3],", ["gpu[1,3],gpu2", "gpu[1,3],login"]),
        ("lo", ["login"]),
        ("gpu[1,", []),
    ],
)
def test_hosts_are_of_the_hostfile_and_the_environment(monkeypatch, tmp_path, incomplete, expected):
    monkeypatch.setenv("CCCTL_HOSTS", "gpu[2-3]:2,login")
    (tmp_path / "hosts").write_text("gpu1 slots=4\ngpu2:4\n")
    context = typer.Context(typer.core.TyperCommand("run"))
    context.params = {"hostfile": str(tmp_path / "hosts")}
    assert words.hosts(context, incomplete) == expected


@pytest.mark.parametrize("name", ["hostfile", "hosts"])
def test_hosts_are_of_the_hostfile_in_the_folder_where_none_is_named(monkeypatch, tmp_path, name):
    monkeypatch.delenv("CCCTL_HOSTS", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text("gpu1 slots=4\ngpu2:4\n")
    context = typer.Context(typer.core.TyperCommand("run"))
    assert words.hosts(context, "gpu1,") == ["gpu1,gpu2"]


@pytest.mark.parametrize("content", ["gpu[1-", None])
def test_a_hostfile_that_cannot_be_read_gives_no_hosts(monkeypatch, tmp_path, content):
    monkeypatch.delenv("CCCTL_HOSTS", raising=False)
    if content is not None:
        (tmp_path / "hosts").write_text(content)
    context = typer.Context(typer.core.TyperCommand("run"))
    context.params = {"hostfile": str(tmp_path / "hosts")}
    assert words.hosts(context, "") == []
