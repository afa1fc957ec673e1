from dataclasses import replace

import pytest
from machine_changes import cluster, edited, recorded, renumbered, without_gpu, without_serials

from probes.diff.groups import fold_hosts
from probes.topology import Topology

DGX = recorded()
BUS = {gpu.index: gpu.bus_id for gpu in DGX.hosts[0].gpus}
NAMES = [f"gpu{number}" for number in range(1, 6)]


def other_serials(host):
    gpus = tuple(replace(gpu, uuid=f"{host.name}{gpu.uuid}", fabric_cluster=host.name) for gpu in host.gpus)
    nics = tuple(replace(nic, mac="", addresses=(host.name,), errors={"link_downed": 3}) for nic in host.nics)
    return replace(host, gpus=gpus, nics=nics, memory_bytes=(host.memory_bytes or 0) + 4096)


@pytest.mark.parametrize(
    ("changes", "groups"),
    [
        ({}, [NAMES]),
        ({"gpu2": other_serials, "gpu3": other_serials}, [NAMES]),
        ({"gpu4": edited("pci", BUS[0], speed_gts=2.5)}, [NAMES]),
        (
            {"gpu1": lambda host: renumbered(without_serials(host))},
            [["gpu2", "gpu3", "gpu4", "gpu5", "gpu1"]],
        ),
        ({"gpu1": without_gpu(BUS[2])}, [["gpu2", "gpu3", "gpu4", "gpu5"], ["gpu1"]]),
        (
            {"gpu1": without_gpu(BUS[2]), "gpu5": without_gpu(BUS[2]), "gpu3": edited("nics", "ib0", mtu=1)},
            [["gpu1", "gpu5"], ["gpu2", "gpu4"], ["gpu3"]],
        ),
    ],
)
def test_like_hosts_are_one_group_and_every_host_is_in_one(changes, groups):
    found = fold_hosts(cluster(DGX, NAMES, changes))
    assert [group.names for group in found] == groups
    assert found[0].differences == ()
    assert all(group.differences for group in found[1:])


def test_a_group_says_how_it_differs_from_most():
    _, other = fold_hosts(cluster(DGX, NAMES, {"gpu3": without_gpu(BUS[2])}))
    assert [(one.what, one.where) for one in other.differences] == [("missing-gpu", f"gpu3/{BUS[2]}")]


def test_no_hosts_are_no_groups():
    assert fold_hosts(Topology(())) == []
