"""The drawing of a machine: every device has its row, and what is wrong with one stands out."""

from dataclasses import replace

from machine_changes import cluster, recorded

from ccctl.render.svg.topology import pictures
from probes.topology import Probed, Topology

MACHINE = recorded()


def words(drawing):
    return "".join(drawing.parts)


def test_every_gpu_port_and_switch_has_a_row_and_gpus_their_links():
    (drawing,) = pictures(MACHINE, 960)
    host = MACHINE.hosts[0]
    for number in range(len(host.gpus)):
        assert f">GPU{number}<" in words(drawing).replace("▲ ", "")
    for number in range(len(host.physical_nics)):
        assert f">NIC{number}<" in words(drawing).replace("▲ ", "")
    assert "6 NVSwitches" in words(drawing) and words(drawing).count(">12 links<") == 7
    # The GPU that lost one is told apart, with its finding.
    assert words(drawing).count(">11 links<") == 1 and ">▲ GPU3<" in words(drawing)
    assert "GPU3: 1 link down, 11 up" in words(drawing)


def test_hosts_that_are_alike_are_drawn_once():
    (drawing,) = pictures(cluster(MACHINE, ["gpu01", "gpu02", "gpu03"]), 358)
    assert "3 alike" in drawing.title


def test_links_between_gpus_are_curves():
    (drawing,) = pictures(recorded("linux-supermicro-mi300x"), 960)
    # Each of 8 GPUs is joined with the 7 others, and the legend shows one.
    curves = [part for part in drawing.parts if "stroke='#009e73'" in part]
    assert sum("C" in part.partition("fill")[0] for part in curves) == 8 * 7 // 2


def test_what_probes_measured_is_drawn_beside_their_answer():
    host = replace(
        MACHINE.hosts[0],
        probed=(
            Probed("nic_numa", (MACHINE.hosts[0].nics[0].name,), "1", 0.98, {"0": 3e-6, "1": 2e-6}, 40, 7),
        ),
    )
    _, drawing = pictures(Topology((host,)), 960)
    assert "active probes" in drawing.title
    assert "3 us  answer 1, 98.0 % sure" in words(drawing) and ">2 us<" in words(drawing)
