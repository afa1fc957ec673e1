from dataclasses import replace
from pathlib import Path

import pytest
from machine_changes import cluster, edited, recorded, with_host

from probes.base.errors import DataError, UsageError
from probes.detection import merge
from probes.paths.bandwidth import load
from probes.paths.explanation import explain
from probes.paths.lookup import pair_named
from probes.paths.reasons import nvlink_of
from probes.topology import FabricLink, Gpu, Host, Matrix, Nic, PciDevice, Topology

FILES = Path(__file__).parents[3] / "../shared/data/topologies"
real = pytest.mark.skipif(not FILES.is_dir(), reason="the shared topology files are not beside this checkout")
DGX = recorded()
BUS = {gpu.index: gpu.bus_id for gpu in DGX.hosts[0].gpus}


def why(topology, a, b):
    return explain(*pair_named(topology, a, b), load())


@pytest.mark.parametrize(
    ("machine", "a", "b", "path", "gbs", "said"),
    [
        ("linux-nvidia-dgxa100", "GPU0", "GPU7", "NVL", 240, []),
        ("linux-nvidia-dgxa100", "GPU3", "GPU4", "NVL", 220, ["1 of GPU3's 12 NVLinks is down"]),
        ("linux-nvidia-dgxa100", "GPU0", "mlx5_0", "PIX", 24, []),
        (
            "linux-nvidia-dgxa100",
            "GPU4",
            "mlx5_5",
            "PIX",
            12,
            ["the PCIe link of mlx5_5 runs with 8 lanes of 16"],
        ),
        (
            "linux-nvidia-dgxa100",
            "GPU0",
            "mlx5_7",
            "SYS",
            None,
            ["share no PCIe switch", "mlx5_7 is down", "PXN"],
        ),
        ("linux-asus-rtx4090", "GPU0", "GPU1", None, None, ["GeForce RTX 4090) is a model without NVLink"]),
        ("linux-supermicro-mi300x", "GPU0", "GPU7", "NVL", 48, []),
    ],
)
def test_a_way_is_told_with_its_reasons(machine, a, b, path, gbs, said):
    found = why(recorded(machine), a, b)
    assert path in (None, found.path)
    assert gbs in (None, found.gbs)
    text = "\n".join(found.reasons)
    assert [part for part in said if part not in text] == []
    if not said:
        assert found.reasons == ()


@pytest.mark.parametrize(
    ("a", "b"), [("GPU0", "GPU7"), ("GPU0", "ib0"), ("GPU1", "mlx5_7"), ("ens0", "GPU2")]
)
def test_the_parts_lead_from_one_to_the_other_and_back_alike(a, b):
    there, back = why(DGX, a, b), why(DGX, b, a)
    ends = [end.bus_id for end in pair_named(DGX, a, b)]
    assert [there.steps[0].name, there.steps[-1].name] == ends
    assert [step.name for step in there.steps] == [step.name for step in reversed(back.steps)]
    assert (there.path, there.gbs) == (back.path, back.gbs)


def test_a_way_up_and_down_names_every_bridge_and_both_numa_nodes():
    steps = [(step.what, step.name) for step in why(DGX, "GPU0", "mlx5_7").steps]
    assert steps == [
        ("GPU0", "0000:13:00.0"), ("switch port", "0000:12:00.0"), ("switch", "0000:11:00.0"),
        ("root port", "0000:10:01.0"), ("host bridge", "pci0000:10"), ("NUMA node", "0"),
        ("NUMA node", "1"), ("host bridge", "pci0000:70"), ("root port", "0000:70:01.0"),
        ("switch", "0000:71:00.0"), ("switch port", "0000:72:0c.0"), ("mlx5_7", "0000:76:00.0"),
    ]  # fmt: skip


def pair_of_gpus(links=(), matrices=(), **fields):
    pci = tuple(PciDevice(f"0000:0{n}:00.0", "t", root=f"pci{n}", role="device", numa=0) for n in (1, 2, 3))
    gpus = tuple(
        replace(
            Gpu(one.bus_id, "nvml", n, "nvidia", "NVIDIA A100-SXM4-40GB", arch="sm_80", usable=True), **fields
        )
        for n, one in enumerate(pci)
    )
    fabric = tuple(
        FabricLink(f"0000:0{a}:00.0", f"0000:0{b}:00.0", "gpu", "nvlink", count, "t", state="up")
        if b
        else FabricLink(f"0000:0{a}:00.0", "", "unknown", "nvlink", count, "t", state="down")
        for a, b, count in links
    )
    return Topology((Host("h", "nvml", pci=pci, gpus=gpus, fabric=fabric, matrices=matrices),))


def p2p(word, what="p2p_read"):
    names = tuple(f"0000:0{n}:00.0" for n in (1, 2, 3))
    cells = tuple(tuple("X" if a == b else word for b in names) for a in names)
    return (Matrix(what, names, cells, "nvml"),)


@pytest.mark.parametrize(
    ("topology", "said"),
    [
        (pair_of_gpus(), "reports no NVLink though its model has them"),
        (pair_of_gpus(name="NVIDIA A100-PCIE-40GB"), "only over a bridge between two cards"),
        (pair_of_gpus(name="Tesla T4", arch="sm_75"), "is a model without NVLink"),
        (pair_of_gpus(name="", vendor="amd", arch="gfx942"), "reports no xGMI link"),
        (pair_of_gpus(((1, 3, 4), (3, 1, 4), (2, 0, 4))), "4 of GPU1's 4 NVLinks are down"),
        (
            pair_of_gpus(((1, 3, 4), (3, 1, 4), (2, 4, 2), (4, 2, 2))),
            "GPU0's NVLinks lead elsewhere (4 to GPU2), none to GPU1",
        ),
        (pair_of_gpus(mig=True), "MIG is on at GPU0"),
        (pair_of_gpus(usable=False), "not given to this process"),
        (pair_of_gpus(fabric_state="in progress"), "has not joined the NVLink fabric (in progress"),
        (pair_of_gpus(matrices=p2p("CNS")), "the chipset does not support it (nvml says CNS)"),
        (pair_of_gpus(matrices=p2p("DR", "p2p_nvlink")), "disabled by a setting of the driver"),
        (pair_of_gpus(arch="", usable=None), "no source here knows NVLinks"),
    ],
)
def test_why_it_is_not_nvlink(topology, said):
    found = why(topology, "GPU0", "GPU1")
    assert found.path in ("NODE", "SYS", "PHB")
    assert said in "\n".join(found.reasons)


def test_over_a_gpu_in_between():
    found = why(pair_of_gpus(((1, 3, 4), (3, 1, 4), (2, 3, 2), (3, 2, 2))), "GPU0", "GPU1")
    assert found.path == "NVB"
    assert [step.what for step in found.steps] == ["GPU0", "4 x NVLink", "GPU2", "2 x NVLink", "GPU1"]
    assert found.gbs == 40


def test_between_hosts_it_goes_by_the_nearest_ports():
    pair = cluster(DGX, ["a", "b"], {"b": edited("nics", "ib0", state="down")})
    found = why(pair, "a:GPU0", "b:GPU0")
    assert (found.path, found.gbs) == ("NET", 24)
    words = [step.what for step in found.steps]
    assert words[0] == words[-1] == "GPU0"
    at = words.index("network")
    assert words[at - 1] == "mlx5_0"
    # GPU0's own port is down in b: the next one below the same switch takes over.
    assert words[at + 1] == "mlx5_1"
    assert "different hosts" in found.reasons[0]


def test_a_port_on_the_switch_of_a_gpu_is_nearer_than_one_over_its_chip_to_chip_link():
    switch = PciDevice("0000:01:00.0", "sysfs", root="pci0000:00", role="switch")
    below = [replace(switch, bus_id=f"0000:0{n}:00.0", parent=switch.bus_id, role="device") for n in (2, 3)]
    other = replace(switch, bus_id="0000:40:00.0", role="device")
    gpu, near, far = (one.bus_id for one in (*below, other))
    hosts = [
        Host(
            name,
            "sysfs",
            pci=(switch, *below, other),
            gpus=(Gpu(gpu, "nvml", index=0),),
            nics=tuple(Nic(nic, "sysfs", physical=True, bus_id=nic) for nic in (far, near)),
            fabric=(FabricLink(gpu, "numa0", "cpu", "c2c", 1, "nvml", gbs=450.0, state="up"),),
        )
        for name in ("a", "b")
    ]
    steps = why(Topology(tuple(hosts)), "a:GPU0", "b:GPU0").steps
    assert [step.name for step in steps if step.name in (near, far)] == [near, near]


def test_one_nvlink_fabric_across_hosts():
    joined = with_host(
        DGX,
        lambda host: replace(
            host,
            gpus=tuple(
                replace(gpu, fabric_cluster="c0ffee", fabric_clique=1, fabric_state="completed")
                for gpu in host.gpus
            ),
        ),
    )
    assert why(cluster(joined, ["a", "b"]), "a:GPU0", "b:GPU1").path == "NVL"
    apart = {"b": lambda host: replace(host, gpus=tuple(replace(g, fabric_clique=2) for g in host.gpus))}
    assert why(cluster(joined, ["a", "b"], apart), "a:GPU0", "b:GPU1").path == "NET"


@real
@pytest.mark.parametrize(
    "name",
    sorted(
        str(path.relative_to(FILES))
        for path in FILES.glob("*/*.*")
        if "nccl" in str(path) or "hwloc" in str(path)
    ),
)
def test_every_pair_of_every_file_can_be_explained(name):
    try:
        found = merge.from_file((FILES / name).read_bytes(), name)
    except DataError as error:
        pytest.skip(str(error))
    devices = [f"GPU{gpu.index}" for gpu in found.hosts[0].gpus] + [
        n.name for n in found.hosts[0].physical_nics
    ]
    for a in devices[:4]:
        for b in devices:
            told = why(found, a, b)
            assert told.steps
            assert told.path == "LOC" or told.gbs is None or told.limit


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("GPU0", "GPU0"), ("gpu0", "GPU0"), ("13:00.0", "GPU0"), ("00000000:13:00.0", "GPU0"),
        ("GPU-00000002", "GPU2"), ("mlx5_0", "mlx5_0"), ("ib0", "mlx5_0"), ("NIC0", "ens0"),
        ("0000:14:00.0", "mlx5_0"),
        ("a:GPU1", "GPU1"), ("a:13:00.0", "GPU0"), ("docker0", "docker0"),
    ],
)  # fmt: skip
def test_a_device_has_many_names(name, label):
    assert [end.label for end in pair_named(cluster(DGX, ["a"]), name, name)] == [label, label]


@pytest.mark.parametrize(
    ("name", "said", "hint"),
    [
        ("GPU9", "there is no device 'GPU9'", "GPU7"),
        ("mlx5_70", "there is no device", "mlx5_7"),
        ("GPU0", "GPU0 is in 2 hosts (a, b)", "a:GPU0"),
        ("c:GPU0", "there is no device 'c:GPU0'", ""),
    ],
)
def test_a_name_that_fits_none_or_several_is_refused_with_help(name, said, hint):
    with pytest.raises(UsageError) as caught:
        pair_named(cluster(DGX, ["a", "b"]), name, name)
    assert said in caught.value.message
    assert hint in caught.value.hint


def test_one_name_with_its_host_is_enough_for_both():
    a, b = pair_named(cluster(DGX, ["a", "b"]), "b:GPU0", "mlx5_3")
    assert (a.host.name, b.host.name) == ("b", "b")


@pytest.mark.parametrize(
    ("name", "arch", "kind"),
    [
        ("NVIDIA A100-SXM4-80GB", "sm_80", "board"), ("NVIDIA H100 PCIe", "sm_90", "bridge"),
        ("NVIDIA H100 NVL", "sm_90", "bridge"), ("NVIDIA H200", "sm_90", ""), ("Tesla T4", "sm_75", "none"),
        ("NVIDIA L40S", "sm_89", "none"), ("NVIDIA GeForce RTX 4090", "", "none"), ("A10G", "sm_86", "none"),
        ("NVIDIA GeForce RTX 3090", "sm_86", "bridge"), ("Tesla V100-PCIE-16GB", "sm_70", "none"),
        ("Tesla V100-SXM2-16GB", "sm_70", "board"), ("NVIDIA A40", "sm_86", "bridge"),
        ("B200", "sm_100", "board"), ("Tesla K40m", "", "none"), ("Tesla M2070", "sm_20", "none"),
        ("NVIDIA RTX A4000", "", "none"), ("RTX A4500", "", "bridge"), ("RTX A6000", "", "bridge"),
        ("Quadro RTX 4000", "", "none"), ("Quadro RTX 8000", "", "bridge"), ("NVIDIA GB10", "", "none"),
        ("NVIDIA GeForce RTX 2070 SUPER", "", "bridge"), ("NVIDIA H100 80GB HBM3", "", "board"),
        ("GeForce RTX 5090", "sm_120", "none"), ("NVIDIA GH200 480GB", "sm_90", "board"), ("", "", ""),
    ],
)  # fmt: skip
def test_models_have_nvlink_on_the_board_by_a_bridge_or_not_at_all(name, arch, kind):
    assert nvlink_of(Gpu("0000:01:00.0", "t", name=name, arch=arch)) == kind
