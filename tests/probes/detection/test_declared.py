"""Declared topologies against measured matrices: rates as their true topology has them, with noise."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from drawn_examples import chessboard
from gpu_boxes import ODD, box
from measured_boxes import profile_of

from probes.detection.declared import reconcile
from probes.detection.merge import from_file
from probes.paths.pci_tree import functions
from probes.topology import FabricLink, Topology

FILES = Path(__file__).parents[3] / "../shared/data/topologies"
# One of the others is a graph file, and one has devices without a class.
RIGHT = [
    *(
        path
        for path in sorted(FILES.glob("nccl/*.xml"))
        if path.name[:7] not in ("azure-g", "aws-g5.") and "graph" not in path.name
    ),
    *sorted(FILES.glob("hwloc/nvidiaDGX2.xml")),
]
SEEDS = [1, 2, 3]
EVERY = [(a, b) for a in range(8) for b in range(a)]


def one(host):
    return Topology((host,))


def pcie(host, gpu, **changes):
    """The host with another link above a GPU."""
    bus_id = host.gpus[gpu].bus_id
    pci = tuple(replace(item, **changes) if item.bus_id == bus_id else item for item in host.pci)
    return replace(host, pci=pci)


def exchanged(host, a, b):
    """The host with two GPUs in each other's places of the PCI tree."""
    tree = functions(host)
    places = {host.gpus[a].bus_id: tree[host.gpus[b].bus_id], host.gpus[b].bus_id: tree[host.gpus[a].bus_id]}
    pci = tuple(
        replace(
            item,
            parent=places[item.bus_id].parent,
            root=places[item.bus_id].root,
            numa=places[item.bus_id].numa,
        )
        if item.bus_id in places
        else item
        for item in host.pci
    )
    numa = {bus_id: place.numa for bus_id, place in places.items()}
    return replace(
        host, pci=pci, gpus=tuple(replace(gpu, numa=numa.get(gpu.bus_id, gpu.numa)) for gpu in host.gpus)
    )


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", ODD)
def test_a_right_topology_is_not_contradicted(name, seed):
    found = reconcile(one(box(**ODD[name])), profile_of(one(box(**ODD[name])), seed=seed))
    assert found.findings == () and found.topology == one(box(**ODD[name])) and found.pairs > 0


@pytest.mark.skipif(not RIGHT, reason="the shared topology files are not beside this checkout")
@pytest.mark.parametrize("path", RIGHT, ids=lambda path: path.name)
@pytest.mark.parametrize("factor", [0.75, 1.0, 1.2])
def test_no_recorded_topology_is_contradicted(path, factor):
    topology = from_file(path.read_bytes(), path.name)
    gpus = tuple(replace(gpu, index=at) for at, gpu in enumerate(topology.hosts[0].gpus))
    topology = one(replace(topology.hosts[0], gpus=gpus))
    assert reconcile(topology, profile_of(topology, factor=factor, seed=5)).findings == ()


@pytest.mark.skipif(not RIGHT, reason="the shared topology files are not beside this checkout")
def test_what_was_measured_on_a_dgx2_does_not_contradict_its_topology():
    # TACCL measured 8 us for 1 MB from each GPU into the switches (topologies/profiles).
    topology = from_file((FILES / "hwloc/nvidiaDGX2.xml").read_bytes(), "dgx2")
    gpus = tuple(replace(gpu, index=at) for at, gpu in enumerate(topology.hosts[0].gpus))
    topology = one(replace(topology.hosts[0], gpus=gpus))
    rates = np.full((len(gpus), len(gpus)), (1 << 20) / 8e-6 / 1e9)
    assert reconcile(topology, profile_of(topology, rates=rates)).findings == ()


@pytest.mark.parametrize(("left", "seed"), chessboard([0, 1, 2], SEEDS))
def test_nvlinks_that_are_not_there_are_found_and_taken_out(left, seed):
    declared = box(8, EVERY, nics=0)
    dead = {declared.gpus[2].bus_id, declared.gpus[5].bus_id}
    fabric = [
        replace(link, count=left) if {link.source, link.target} == dead else link for link in declared.fabric
    ]
    true = replace(declared, fabric=tuple(link for link in fabric if link.count))
    found = reconcile(one(declared), profile_of(one(true), seed=seed))
    assert [(edit.what, edit.where) for edit in found.edits] == [("nvlink", "GPU2 and GPU5")]
    assert "declared 4 NVLinks" in found.edits[0].text and not found.unexplained
    counts = {
        (link.source, link.target): link.count
        for link in found.topology.hosts[0].fabric
        if {link.source, link.target} == dead
    }
    assert set(counts.values()) == ({left} if left else set())


def test_nvlinks_that_the_file_lacks_are_found():
    declared = box(4, [(0, 2)], nics=0)
    true = box(4, [(0, 2), (1, 3)], nics=0)
    found = reconcile(one(declared), profile_of(one(true)))
    assert [(edit.what, edit.where) for edit in found.edits] == [("nvlink", "GPU1 and GPU3")]
    assert "declared no NVLink" in found.edits[0].text and "4 NVLinks" in found.edits[0].text
    assert sorted(
        (link.source, link.target, link.count) for link in found.topology.hosts[0].fabric
    ) == sorted((link.source, link.target, link.count) for link in true.fabric)


@pytest.mark.parametrize(("link", "seed"), chessboard([(0, 4), (5, 4), (3, 1)], SEEDS))
def test_a_pcie_link_that_is_narrower_is_found(link, seed):
    gpu, lanes = link
    declared = box(8, nics=0)
    found = reconcile(one(declared), profile_of(one(pcie(declared, gpu, max_width=lanes)), seed=seed))
    assert [(edit.what, edit.where) for edit in found.edits] == [("pcie", f"GPU{gpu}")]
    assert not found.unexplained
    corrected = functions(found.topology.hosts[0])[declared.gpus[gpu].bus_id]
    assert (corrected.max_width or 16) * (corrected.max_speed_gts or 0) == lanes * 16.0


@pytest.mark.parametrize(("exchange", "seed"), chessboard([(1, 4), (0, 7), (3, 6)], SEEDS))
def test_gpus_in_each_others_places_are_found(exchange, seed):
    a, b = exchange
    # From one of these CPUs to the other goes less than half of what a switch carries.
    true = box(8, nics=0, intel=True)
    found = reconcile(one(exchanged(true, a, b)), profile_of(one(true), seed=seed))
    assert {edit.what for edit in found.edits} == {"place"} and not found.unexplained
    # Exchanging the neighbours of both comes to the same tree.
    pairs = {frozenset({2 * at, 2 * at + 1}) for at in range(4)}
    tree = functions(found.topology.hosts[0])
    place = {gpu.index: tree[gpu.bus_id].parent for gpu in found.topology.hosts[0].gpus}
    together = {frozenset(g for g in place if place[g] == parent) for parent in set(place.values())}
    assert together == pairs


def test_two_errors_at_once_are_both_named():
    declared = box(8, EVERY, nics=0)
    dead = {declared.gpus[0].bus_id, declared.gpus[1].bus_id}
    few = {declared.gpus[6].bus_id, declared.gpus[7].bus_id}
    fabric = [
        replace(link, count=1) if {link.source, link.target} == few else link
        for link in declared.fabric
        if {link.source, link.target} != dead
    ]
    found = reconcile(one(declared), profile_of(one(replace(declared, fabric=tuple(fabric)))))
    assert {edit.where for edit in found.edits} == {"GPU0 and GPU1", "GPU6 and GPU7"}


def test_fewer_links_into_switches_are_found():
    host = box(8, nics=0)
    fabric = [FabricLink(gpu.bus_id, "nvswitch", "switch", "nvlink", 12, "test") for gpu in host.gpus]
    declared = replace(host, fabric=tuple(fabric))
    true = replace(host, fabric=(replace(fabric[0], count=6), *fabric[1:]))
    found = reconcile(one(declared), profile_of(one(true)))
    assert [(edit.what, edit.where) for edit in found.edits] == [("nvlink", "GPU0")]
    assert found.topology.hosts[0].fabric_links() == 7 * 12 + 6


def hosts(*mbit):
    return Topology(
        tuple(
            replace(box(2, nics=1, name=f"n{at}"), nics=(replace(box(2, nics=1).nics[0], speed_mbit=speed),))
            for at, speed in enumerate(mbit)
        )
    )


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("declared", "true", "named"),
    [
        ([200_000] * 4, [200_000, 200_000, 100_000, 200_000], {"n2": 100_000}),
        ([100_000] * 3, [25_000] * 3, {"n0": 25_000, "n1": 25_000, "n2": 25_000}),
        ([10_000, 100_000, 100_000], [100_000] * 3, {"n0": 100_000}),
        ([200_000, 100_000, 100_000], [200_000, 100_000, 100_000], {}),
        ([100_000] * 4, [100_000, 25_000, 10_000, 100_000], {"n1": 25_000, "n2": 10_000}),
    ],
)
def test_speeds_of_nics(declared, true, named, seed):
    found = reconcile(hosts(*declared), profile_of(hosts(*true), factor=0.94, seed=seed))
    assert {edit.host for edit in found.edits} == set(named) and {edit.what for edit in found.edits} <= {
        "nic"
    }
    speeds = {host.name: host.nics[0].speed_mbit for host in found.topology.hosts}
    assert speeds == {f"n{at}": named.get(f"n{at}", mbit) for at, mbit in enumerate(declared)}
    assert not found.unexplained


def test_a_slow_way_between_two_hosts_is_no_slow_nic():
    topology = hosts(100_000, 100_000, 100_000)
    profile = profile_of(topology, slow={(0, 2): 0.1, (0, 3): 0.1, (1, 2): 0.1, (1, 3): 0.1})
    found = reconcile(topology, profile)
    assert found.edits == () and {finding.where for finding in found.unexplained} == {"n0/mlx5_0"}
    assert "lies between them" in found.unexplained[0].text
