"""Graph files against the restrictions of NCCL's parser: src/graph/xml.cc and search.cc of NCCL 2.30.7."""

from dataclasses import replace

import pytest
from drawn_examples import chessboard
from gpu_boxes import ODD, box
from nccl_parser import RefusedError, parse

from probes.base.errors import DataError, UsageError
from synth.nccl_graphs.channels import MOST_CHANNELS
from synth.nccl_graphs.graph_xml import graph_file, read_graphs
from synth.nccl_graphs.planner import plan_graphs

# Values that kvDictLinkType of NCCL 2.8 to 2.30 and of RCCL has; P2C came with 2.28.
KNOWN_TO_ALL = {"LOC", "NVL", "NVB", "PIX", "PXB", "PXN", "PHB", "SYS"}


def written(host, *, between_hosts=False):
    graphs = plan_graphs(host, between_hosts=between_hosts)
    return graphs, graph_file(graphs)


def test_what_is_written_is_read_again():
    graphs, content = written(box(links=[(0, 2), (1, 3)], nics=2), between_hosts=True)
    ring, tree = read_graphs(content, "graph.xml")
    assert (ring.number, ring.pattern, tree.number, tree.pattern) == (0, 4, 1, 1)
    assert len(ring.channels) == len(tree.channels) == len(graphs.ring.channels)
    assert ring.gbs_intra == ring.gbs_inter == pytest.approx(graphs.ring.gbs, rel=1e-5)
    for channel, (nets, gpus) in zip(graphs.ring.channels, ring.channels, strict=True):
        assert gpus == tuple(graphs.gpu_numbers[at] for at in channel.gpus)
        assert nets == (graphs.net_numbers[channel.nic],) * 2


@pytest.mark.parametrize(("name", "between_hosts"), chessboard(ODD, [False, True]))
def test_nccls_parser_sees_all_of_it(name, between_hosts):
    graphs, content = written(box(**ODD[name]), between_hosts=between_hosts)
    root = parse(content)
    assert (root.name, root.attributes["version"], len(root.inside)) == ("graphs", "1", 2)
    for node, graph in zip(root.inside, (graphs.ring, graphs.tree), strict=True):
        # Without one of them NCCL ends, or takes 0.
        assert {"id", "pattern", "crossnic", "nchannels", "speedintra", "speedinter", "latencyinter"} <= set(
            node.attributes
        )
        assert {"typeintra", "typeinter", "samechannels"} <= set(node.attributes)
        assert int(node.attributes["nchannels"]) == len(node.inside) == len(graph.channels)
        for channel, planned in zip(node.inside, graph.channels, strict=True):
            gpus = [int(one.attributes["dev"], 16) for one in channel.inside if one.name == "gpu"]
            nets = [int(one.attributes["dev"], 16) for one in channel.inside if one.name == "net"]
            assert gpus == [graphs.gpu_numbers[at] for at in planned.gpus]
            assert nets == ([graphs.net_numbers[planned.nic]] * 2 if between_hosts else [])


@pytest.mark.parametrize(
    "content",
    [
        b'<?xml version="1.0"?>\n<graphs version="1"/>',
        b'<graphs version="1">\n\t<graph id="0"/>\n</graphs>',
        b'<graphs version="1"\n  name="x"/>',
        b"<graphs version=1/>",
        b'<graphs version="1">',
    ],
)
def test_what_xml_allows_and_nccl_refuses(content):
    with pytest.raises(RefusedError):
        parse(content)


def test_the_parser_that_knows_only_spaces_and_line_feeds_can_read_it():
    _, content = written(box(nics=1), between_hosts=True)
    text = content.decode("ascii")
    assert not {"\t", "\r", "&", "'"} & set(text)
    # A declaration ends in "?>", after which the parser expects ">" and stops.
    assert text.startswith("<graphs ")
    for line in text.splitlines():
        words = line.strip().removesuffix("/>").removesuffix(">").split(" ")
        # One space before each attribute and none before the end: a second one would be a name of no letters.
        assert all(words), line
        assert len(words) - 1 <= 16
        assert max(map(len, words)) < 255


def test_devices_are_hexadecimal_as_strtol_with_base_16_reads_ten_as_sixteen():
    host = box(12)
    _, content = written(host)
    assert b'dev="0xa"' in content
    assert b'dev="10"' not in content
    assert sorted(read_graphs(content, "graph.xml")[0].channels[0][1]) == list(range(12))


def test_gpus_have_no_rank_so_that_one_file_serves_every_host():
    # With a rank NCCL takes that number for a rank of the communicator and looks no device up.
    _, content = written(box())
    assert b"rank=" not in content


def test_the_number_of_channels_is_that_of_the_elements():
    # NCCL counts by the attribute and fills by the elements: one too many is a channel of rank 0 alone.
    graphs, content = written(box(8, links=[(0, 1), (2, 3)]))
    assert content.count(b"<channel>") == 2 * len(graphs.ring.channels)
    assert content.count(f'nchannels="{len(graphs.ring.channels)}"'.encode()) == 2


def test_every_channel_has_all_gpus_as_the_others_would_be_rank_0():
    _, content = written(box(8))
    for graph in read_graphs(content, "graph.xml"):
        assert all(sorted(gpus) == list(range(8)) for _, gpus in graph.channels)


def test_ring_and_tree_have_equally_many_channels_as_nccl_takes_the_smaller_number():
    graphs, _ = written(box(8, links=[(0, 4), (1, 5)], nics=4), between_hosts=True)
    assert len(graphs.ring.channels) == len(graphs.tree.channels) <= MOST_CHANNELS


def test_channels_do_not_cross_rails_as_nccl_cross_nic_0_would_ignore_the_file():
    _, content = written(box(8, nics=4), between_hosts=True)
    assert content.count(b'crossnic="0"') == 2
    for graph in read_graphs(content, "graph.xml"):
        assert all(len(nets) == 2 and nets[0] == nets[1] for nets, _ in graph.channels)


@pytest.mark.parametrize(("gpus", "between_hosts"), chessboard([2, 4, 8], [False, True]))
def test_types_are_words_that_every_version_knows(gpus, between_hosts):
    graphs, _ = written(box(gpus, nics=2), between_hosts=between_hosts)
    for graph in (graphs.ring, graphs.tree):
        assert {graph.type_intra, graph.type_inter} <= KNOWN_TO_ALL


def test_a_channel_over_pcie_is_never_called_nvlink_as_ll128_loses_data_there():
    # One pair has no NVLink: the ring of four goes over PCIe once.
    graphs, _ = written(box(4, links=[(0, 1), (1, 2), (2, 3)]))
    assert graphs.ring.type_intra in ("PHB", "SYS")
    every, _ = written(box(4, links=[(a, b) for a in range(4) for b in range(a)]))
    assert every.ring.type_intra == "NVL"


def test_a_link_that_is_down_is_not_used():
    host = box(4, links=[(0, 1), (1, 2), (2, 3), (3, 0)])
    assert plan_graphs(host, between_hosts=False).ring.type_intra == "NVL"
    dead = {host.gpus[0].bus_id, host.gpus[1].bus_id}
    rest = tuple(link for link in host.fabric if {link.source, link.target} != dead)
    down = tuple(
        replace(link, target="", target_kind="unknown", state="down")
        for link in host.fabric
        if link not in rest
    )
    assert plan_graphs(replace(host, fabric=rest + down), between_hosts=False).ring.type_intra != "NVL"


def test_numbers_of_nics_that_no_file_told_are_doubted():
    assert not plan_graphs(box(nics=2), between_hosts=True).doubts
    graphs = plan_graphs(box(nics=2, index=False), between_hosts=True)
    assert "NCCL_TOPO_DUMP_FILE" in graphs.doubts[0]
    assert graphs.net_numbers == (0, 1)


def test_without_a_nic_there_are_no_graphs_between_hosts():
    with pytest.raises(UsageError, match="no NIC"):
        plan_graphs(box(nics=0), between_hosts=True)


def test_gpus_without_numbers_are_refused():
    host = box()
    with pytest.raises(UsageError, match="GPUs have no numbers"):
        plan_graphs(
            replace(host, gpus=tuple(replace(gpu, index=None) for gpu in host.gpus)), between_hosts=False
        )


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b'<system version="1"/>', "expected a graph file"),
        (
            b'<graphs version="1"><graph id="0" pattern="4"><channel><gpu/></channel></graph></graphs>',
            "with a dev",
        ),
        (b'<graphs version="1"><graph pattern="4"/></graphs>', "expected id"),
        (b'<graphs version="1"><graph id="0" pattern="4" speedintra="x"/></graphs>', "speeds"),
    ],
)
def test_what_is_no_graph_file_is_refused(content, told):
    with pytest.raises(DataError, match=told):
        read_graphs(content, "x.xml")
