import re
from pathlib import Path

import pytest
from drawn_examples import drawn
from hypothesis import example, given, settings, strategies as st

from probes.base.errors import DataError
from probes.detection import merge
from probes.paths.bandwidth import load
from probes.paths.path_type import Paths
from probes.paths.reasons import reasons
from probes.smi import matrix as smi

FILES = Path(__file__).parents[3] / "../shared/data/topologies/smi"
real = pytest.mark.skipif(not FILES.is_dir(), reason="the shared topology files are not beside this checkout")

# Worked out by reading the files: GPUs, NICs, physical NVLinks, NUMA nodes. A P100 and V100 row adds up
# to 6 links (1+1+2+2), so eight of them have 24; with 12 to each of 7 peers they are 12 into a switch.
EXPECTED = {
    "dgx1-p100-hadoop-test.txt": (8, 0, 24, 0),
    "mleng-04.txt": (2, 0, 2, 0),
    "mleng-06.txt": (8, 0, 96, 2),
    "mleng-08-p2p-status-OK.txt": (8, 0, 0, 0),
    "v100x8-1nic-dlperf.txt": (8, 1, 24, 0),
    "v100x8-2nic-dlperf-messytabs.txt": (8, 2, 24, 2),
}
# Output of a recent driver: underlined header, NICs by number, three further columns.
MODERN = (
    "\t\x1b[4mGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tNV4\tPIX\tSYS\t0-23,48-71\t0\t\tN/A\n"
    "GPU1\tNV4\t X \tSYS\tPXB\t24-47,72-95\t1\t\tN/A\n"
    "NIC0\tPIX\tSYS\t X \tSYS\t\t\t\t\n"
    "NIC1\tSYS\tPXB\tSYS\t X \t\t\t\t\n"
    "\nLegend:\n\n  X    = Self\n  NV#  = Connection traversing a bonded set of # NVLinks\n"
    "\nNIC Legend:\n\n  NIC0: mlx5_3\n  NIC1: mlx5_0\n"
)
# A Grace Blackwell tray whose container has no CPU of the second NUMA node: those cells are empty.
EMPTY_CPUS = (
    "\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tNV18\tNODE\t0-35\t0\t\tN/A\n"
    "GPU1\tNV18\t X \tNODE\t\t1\t\tN/A\n"
    "NIC0\tNODE\tNODE\t X \t\t\t\t\n"
)


def read(text):
    return merge.from_file(text.encode(), "box.txt")


def host_of(text):
    (host,) = read(text).hosts
    return host


def between(host, a, b):
    devices = {f"GPU{gpu.index}": gpu for gpu in host.gpus} | {nic.name: nic for nic in host.nics}
    return Paths(host).between(devices[a], devices[b])


def matrix(cells, further=""):
    """A matrix of GPUs from rows of words."""
    names = [f"GPU{n}" for n in range(len(cells))]
    rows = ["\t".join([name, *row]) + further for name, row in zip(names, cells, strict=True)]
    return "\n".join(["\t" + "\t".join(names) + ("\tCPU Affinity" if further else ""), *rows]) + "\n"


@real
@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_real_file_gives_its_gpus_nics_links_and_nodes(name):
    found = merge.from_file((FILES / name).read_bytes(), name)
    (host,) = found.hosts
    counted = (len(host.gpus), len(host.physical_nics), host.fabric_links(), len(host.numa))
    assert counted == EXPECTED[name]
    assert found.problems() == []
    assert {finding.what for finding in found.findings} == ({"assumed-speed"} if host.fabric else set())
    assert {record.method for record in (*host.gpus, *host.nics, *host.fabric)} == {"smi"}


@real
def test_every_shared_file_is_expected_here():
    assert {path.name for path in FILES.iterdir()} == set(EXPECTED)


@real
@pytest.mark.parametrize(
    ("name", "pair", "path"),
    [
        ("dgx1-p100-hadoop-test.txt", "GPU0 GPU4", "NVL"),
        ("v100x8-1nic-dlperf.txt", "GPU0 GPU4", "NVL"),
        ("v100x8-1nic-dlperf.txt", "GPU1 mlx5_0", "NODE"),
        ("v100x8-1nic-dlperf.txt", "GPU2 mlx5_0", "PIX"),
        ("v100x8-2nic-dlperf-messytabs.txt", "GPU6 mlx5_1", "PIX"),
        ("v100x8-2nic-dlperf-messytabs.txt", "mlx5_0 mlx5_1", "SYS"),
        ("mleng-06.txt", "GPU0 GPU7", "NVL"),
        ("mleng-08-p2p-status-OK.txt", "GPU0 GPU7", "?"),
    ],
)
def test_paths_of_a_real_file(name, pair, path):
    host = merge.from_file((FILES / name).read_bytes(), name).hosts[0]
    a, b = pair.split()
    assert between(host, a, b) == between(host, b, a) == path


@real
def test_what_stands_right_of_the_cells():
    host = host_of((FILES / "v100x8-2nic-dlperf-messytabs.txt").read_text())
    assert [gpu.numa for gpu in host.gpus] == [0] * 4 + [1] * 4
    assert host.gpus[7].cpus == "24-47,72-95"
    assert [(node.index, node.cpus) for node in host.numa] == [(0, "0-23,48-71"), (1, "24-47,72-95")]
    host = host_of((FILES / "mleng-04.txt").read_text())
    assert [(gpu.cpus, gpu.numa) for gpu in host.gpus] == [("0-23", None)] * 2


def test_a_recent_drivers_matrix_with_escapes_legend_and_three_columns():
    found = read(MODERN)
    (host,) = found.hosts
    assert [nic.name for nic in host.physical_nics] == ["mlx5_3", "mlx5_0"]
    assert [(gpu.index, gpu.numa) for gpu in host.gpus] == [(0, 0), (1, 1)]
    assert (between(host, "GPU0", "mlx5_3"), between(host, "GPU1", "mlx5_0")) == ("PIX", "PXB")
    assert host.fabric_links() == 4
    assert found.notes == ()
    assert [finding.what for finding in found.findings] == ["assumed-speed"]


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("\n", "\r"),
        lambda text: text.replace("\t", "    "),
        lambda text: text.replace("\t", "\t\t"),
        lambda text: re.sub(r"\x1b\[\d+m", "", text),
        lambda text: "user@box:~$ nvidia-smi topo -m\n" + text + "user@box:~$\n",
        lambda text: "\ufeff" + text,
        lambda text: text.replace("\nGPU", "\n GPU"),
        lambda text: "\n".join(line.rstrip() for line in text.split("\n")),
        lambda text: text.replace("\n", "\n\n"),
        lambda text: text.strip(),
        lambda text: text + "\nGPU0 and GPU1 are joined by four links.\nmlx5_3 is near GPU0.\n",
    ],
)
def test_however_it_was_pasted_it_says_the_same(change):
    assert read(change(MODERN)).hosts == read(MODERN).hosts


def test_utf_16_as_windows_writes_it():
    assert merge.from_file(MODERN.encode("utf-16"), "box.txt").hosts == read(MODERN).hosts


def test_a_gpu_without_a_near_cpu_keeps_its_numa_node():
    found = read(EMPTY_CPUS)
    assert [(gpu.cpus, gpu.numa) for gpu in found.hosts[0].gpus] == [("0-35", 0), ("", 1)]
    assert [(node.index, node.cpus) for node in found.hosts[0].numa] == [(0, "0-35"), (1, "")]
    assert found.notes == ()


@pytest.mark.parametrize(
    "changed",
    [
        EMPTY_CPUS.replace("\t", "    "),  # no tabs that show the empty cell
        EMPTY_CPUS.replace("\t\t1\t\tN/A", "\t\t\t\tN/A"),  # the NUMA node is empty, too
        EMPTY_CPUS.replace("\t", "\t\t").replace("\t\t\t\t1\t\t\t\tN/A", "\t\t36-71\t\t1"),
    ],
)
def test_an_affinity_that_cannot_be_told_is_unknown_and_noted(changed):
    found = read(changed)
    assert (found.hosts[0].gpus[1].cpus, found.hosts[0].gpus[1].numa) == ("", None)
    assert any("for 3 columns: affinity is unknown" in note for note in found.notes)


def test_cells_and_names_that_a_terminal_merged_are_separated():
    merged = MODERN.replace("NIC0\tNIC1\tCPU", "NIC0NIC1\tCPU").replace("PIX\tSYS\t0", "PIXSYS\t0")
    assert merged.count("PIXSYS") == merged.count("NIC0NIC1") == 1
    assert read(merged).hosts == read(MODERN).hosts
    with pytest.raises(DataError, match="GPU0 has more cells than the 4 columns"):
        read(merged.replace("PIXSYS", "PIXSYSSYS"))


def test_columns_and_cpus_that_a_terminal_merged_are_separated():
    merged = (
        MODERN.replace("NIC1\tCPU", "NIC1CPU").replace("SYS\t0-23", "SYS0-23").replace("PXB\t24", "PXB24")
    )
    assert merged.count("NIC1CPU") == merged.count("SYS0-23,48-71") == merged.count("PXB24-47,72-95") == 1
    assert read(merged).hosts == read(MODERN).hosts


def test_a_gpu_whose_nvlinks_all_others_miss_is_a_finding():
    others = [["NV18" if n != m else "X" for m in range(4)] for n in range(4)]
    lost = [
        [word if 2 not in (n, m) or n == m else "NODE" for m, word in enumerate(row)]
        for n, row in enumerate(others)
    ]
    found = read(matrix(lost))
    assert found.hosts[0].fabric_links() == 3 * 18
    assert [(finding.where, finding.text) for finding in found.findings if finding.what == "link-down"] == [
        ("box/gpu2", "0 up; others like it have 18 up")
    ]


def test_the_matrix_of_pcie_alone_is_noted():
    legend = "Legend:\n\n  X    = Self\n  SYS  = Connection traversing PCIe\n"
    pcie = matrix([["X", "PHB"], ["PHB", "X"]]) + legend
    assert ["topo -mp" in note for note in read(pcie).notes] == [True]
    assert read(pcie + "  NV#  = NVLinks\n").notes == ()


def test_soc_is_the_old_name_of_sys():
    host = host_of(matrix([["X", "SOC"], ["SOC", "X"]]))
    assert between(host, "GPU0", "GPU1") == "SYS"
    assert host.matrices[0].cells == (("X", "SYS"), ("SYS", "X"))


def test_p2p_words_are_kept_and_ok_is_a_peer():
    words = [
        ["X", "OK", "CNS", "GNS"],
        ["OK", "X", "TNS", "NS"],
        ["CNS", "TNS", "X", "DR"],
        ["U", "NS", "DR", "X"],
    ]
    host = host_of(matrix(words))
    assert [gpu.peers for gpu in host.gpus] == [("gpu1",), ("gpu0",), (), ()]
    assert host.matrices[0].what == "p2p"
    assert host.matrices[0].cell("gpu0", "gpu3") == "GNS"


def test_both_matrices_of_one_machine_are_one_host_and_two_of_a_kind_two():
    paths, p2p = matrix([["X", "NV2"], ["NV2", "X"]]), matrix([["X", "OK"], ["OK", "X"]])
    host = host_of(paths + "\n" + p2p)
    assert ([m.what for m in host.matrices], host.gpus[0].peers) == (["path", "p2p"], ("gpu1",))
    assert [h.name for h in read(paths + paths).hosts] == ["box-0", "box-1"]
    assert len(read(paths + matrix([["X"]])).hosts) == 2


@pytest.mark.parametrize(
    ("rows", "links", "ends"),
    [
        ([["X", "NV12"], ["NV12", "X"]], 12, {"gpu"}),  # a bridged pair
        (
            [["X", "NV4", "NV4", "NV4"], *[["NV4"] * n + ["X"] + ["NV4"] * (3 - n) for n in (1, 2, 3)]],
            24,
            {"gpu"},
        ),
        ([["X", "NV12", "NV12"], ["NV12", "X", "NV12"], ["NV12", "NV12", "X"]], 36, {"switch"}),
    ],
)
def test_more_links_than_a_gpu_has_lead_into_switches(rows, links, ends):
    host = host_of(matrix(rows))
    assert (host.fabric_links(), {link.target_kind for link in host.fabric}) == (links, ends)


def test_rows_of_nics_may_be_missing_at_the_end_and_rows_of_gpus_not():
    lines = MODERN.split("\n")
    for rest in ([], ["NIC0\tPI"], ["NIC0\tPIX\tSYS\t X \tSYS"]):
        found = read("\n".join(lines[:3] + rest))
        (host,) = found.hosts
        assert [nic.name for nic in host.nics] == ["NIC0", "NIC1"]
        assert (between(host, "GPU0", "NIC0"), between(host, "GPU1", "NIC1")) == ("PIX", "PXB")
        assert between(host, "NIC0", "NIC1") == ("SYS" if len(rest and rest[0]) > 9 else "?")
        assert any("missing" in note for note in found.notes)
        assert {finding.what for finding in found.findings} == {"assumed-speed"}
    for rest in (lines[:2], [lines[0], *lines[2:5]], [*lines[:3], lines[4]]):
        with pytest.raises(DataError, match="found none for"):
            read("\n".join(rest))


def test_one_gpu_is_a_matrix_too():
    host = host_of("\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t0-11\t0\t\tN/A\n")
    assert (len(host.gpus), host.gpus[0].cpus) == (1, "0-11")


def test_rows_that_contradict_each_other_are_a_finding():
    found = read(matrix([["X", "NV2"], ["NV1", "X"]]))
    assert [(finding.what, finding.where) for finding in found.findings if finding.what == "lopsided"] == [
        ("lopsided", "box/gpu1")
    ] or [(finding.what, finding.where) for finding in found.findings if finding.what == "lopsided"] == [
        ("lopsided", "box/gpu0")
    ]


def test_a_number_that_is_left_out_is_noted():
    text = matrix([["X", "PIX"], ["PIX", "X"]]).replace("GPU1", "GPU2")
    assert any("GPU1 not in the matrix" in note for note in read(text).notes)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the file is empty"),
        ("Thu Mar 5\n+----+\n| NVIDIA-SMI 535 |\n", "a matrix of nvidia-smi, found neither"),
        ("GPU 0: NVIDIA A100 (UUID: GPU-1)\n", "found neither"),
        ('{"schema": "ccctl/topology/1"}', "found neither"),
        ("GPU0\tX\tNV2\nGPU1\tNV2\tX\n", "found rows alone"),
        ("\tGPU0\tGPU1\n", "found none for GPU0, GPU1"),
        (matrix([["X", "NV2"], ["NV2", "X"]])[:-11], "found none for GPU1"),
        ("\tGPU0\tGPU1\nGPU0\tX\tNV2\nGPU1\tNV2\n", "line 3: GPU1 has 1 cells of the 2"),
        ("\tGPU0\tGPU1\nGPU0\tX\tFAR\nGPU1\tNV2\tX\n", "then 'FAR'"),
        ("\tGPU0\tGPU1\nGPU0\tX\tNV2\tNV2\nGPU1\tNV2\tX\n", "more cells than the 2 columns"),
        ("\tGPU0\nGPU0\tX\nGPU1\tNV2\tX\n", "GPU1 has a row, and no column"),
        ("\tGPU0\nGPU0\tX\nGPU0\tX\n", "second row"),
        ("\tGPU0\tGPU0\nGPU0\tX\tX\n", "two columns"),
        (matrix([["NV2", "X"], ["X", "NV2"]]), "expected X in the row of GPU0 at GPU0 alone"),
        (matrix([["X", "OK"], ["NV2", "X"]]), "found both: NV2, OK"),
    ],
)
def test_what_is_no_whole_matrix_is_refused_with_its_reason(text, reason):
    with pytest.raises(DataError, match=re.escape(reason)) as caught:
        read(text)
    assert caught.value.source == "box.txt"
    assert caught.value.hint


def test_affinity_that_the_end_of_the_file_may_have_cut_is_unknown():
    text = matrix([["X", "NV2"], ["NV2", "X"]], "\t0-15")
    whole = text[:-1].rpartition("\t")[0] + "\t16-31"
    assert host_of(whole + "\n").gpus[1].cpus == "16-31"
    assert host_of(whole).gpus[1].cpus == ""
    assert host_of(text[:-1]).gpus[1].cpus == "0-15"
    assert any("ends inside" in note for note in read(whole).notes)


def test_a_legend_that_the_end_of_the_file_may_have_cut_gives_no_name():
    assert [nic.name for nic in host_of(MODERN.rstrip()[:-2]).nics] == ["mlx5_3", "NIC1"]


SAMPLES = [MODERN] + [path.read_text() for path in sorted(FILES.glob("*.txt"))]
WHOLE = {text: read(text) for text in (*SAMPLES, EMPTY_CPUS)}


def facts(host):
    """Return the parts of a matrix that must never be wrong silently."""
    links = sorted((link.source, link.target, link.count) for link in host.fabric)
    return len(host.gpus), len(host.nics), links, [m.cells for m in host.matrices]


def flat(matrices):
    return [cell for rows in matrices for row in rows for cell in row]


def same_or_refused(text, changed):
    try:
        found = read(changed)
    except DataError as error:
        assert error.problems
        return
    assert found.problems() == []
    if not found.findings:
        seen, true = (facts(one.hosts[0]) for one in (found, WHOLE[text]))
        assert seen[:3] == true[:3]
        for cells in zip(flat(seen[3]), flat(true[3]), strict=True):
            assert cells[0] in ("", cells[1])
            assert cells[0] or found.notes
        for gpu, true in zip(found.hosts[0].gpus, WHOLE[text].hosts[0].gpus, strict=True):
            assert gpu.cpus in ("", true.cpus)
            assert gpu.numa in (None, true.numa)


@given(st.sampled_from([*SAMPLES, EMPTY_CPUS]), st.integers(0, 4000))
@settings(max_examples=drawn(300))
def test_cut_anywhere_it_is_read_right_or_refused(text, at):
    same_or_refused(text, text[:at])


@given(st.sampled_from(SAMPLES), st.integers(0, 60))
def test_cut_at_any_width_it_is_read_right_or_refused(text, width):
    same_or_refused(text, "\n".join(line[: width + 4] for line in text.split("\n")))


@given(st.sampled_from(SAMPLES), st.integers(0, 12), st.data())
@example(MODERN, 1, None)
def test_with_a_line_or_a_column_dropped_it_is_read_right_or_refused(text, at, data):
    lines = text.split("\n")
    same_or_refused(text, "\n".join(line for number, line in enumerate(lines) if number != at))
    some = set(range(len(lines))) if data is None else data.draw(st.sets(st.integers(0, 12)))
    dropped = [
        " ".join(word for place, word in enumerate(line.split()) if place != at) if number in some else line
        for number, line in enumerate(lines)
    ]
    same_or_refused(text, "\n".join(dropped))


@given(st.sampled_from(SAMPLES), st.randoms(use_true_random=False))
def test_whatever_stands_between_the_cells_it_says_the_same(text, random):
    def spaces(match):
        return "".join(random.choice("\t ") for _ in range(random.randint(1, 4)))

    changed = re.sub(r"(?<=\S)[ \t]+(?=\S)", spaces, text)
    assert read(changed).hosts == WHOLE[text].hosts


@given(st.text(alphabet="GPUX01NVSK \t\nPIOYmlx_5", max_size=200))
def test_any_text_is_read_whole_or_refused(text):
    try:
        found = smi.read(text.encode(), "odd.txt")
    except DataError as error:
        assert error.problems
    else:
        assert found.problems() == []


@pytest.mark.parametrize("name", ["GPU" + "9" * 5000, "GPU²", "GPU٣"])
def test_the_number_of_a_device_is_short_and_in_ascii(name):
    with pytest.raises(DataError):
        smi.read(f"\t{name}\tCPU Affinity\n{name}\t X \t0-99999999999\n".encode(), "x")


GRACE = (
    "GPU0 GPU1 CPU Affinity NUMA Affinity GPU NUMA ID\n"
    "GPU0 X NV18 0-71 0,2-9 2\n"
    "GPU1 NV18 X 72-143 1,10-17 10\n"
)


def test_a_list_of_numa_nodes_places_the_gpu_on_the_lowest():
    host = host_of(GRACE)
    assert [gpu.numa for gpu in host.gpus] == [0, 1]
    assert [(node.index, node.cpus) for node in host.numa] == [(0, "0-71"), (1, "72-143")]


@pytest.mark.parametrize("listed", ["0-3,8,16-19", "8,0-3", "0"])
def test_every_list_of_the_kernels_form_is_read(listed):
    text = f"GPU0 GPU1 CPU Affinity NUMA Affinity\nGPU0 X SYS {listed} {listed}\nGPU1 SYS X 4-7 1\n"
    host = host_of(text)
    assert (host.gpus[0].numa, host.gpus[0].cpus) == (0, listed)


def test_a_path_between_devices_of_unknown_nodes_names_no_node():
    text = "GPU0 NIC0 CPU Affinity NUMA Affinity\nGPU0 X SYS 0-3 0\nNIC0 SYS X\n"
    host = host_of(text)
    said = reasons(host, host.gpus[0], host.nics[0], "SYS", load())
    assert not any("None" in sentence for sentence in said)
    assert "no source states the NUMA node of NIC0" in said


LINKS = (
    "GPU 0: NVIDIA Thing (UUID: GPU-0a)\n\t Link 0: 14.062 GB/s\n\t Link 1: 14.062 GB/s\n"
    "GPU 1: NVIDIA Thing (UUID: GPU-1b)\n\t Link 0: 14.062 GB/s\n\t Link 1: <inactive>\n"
)


@pytest.mark.parametrize("text", [LINKS + matrix([["X", "NV2"], ["NV2", "X"]]), None])
def test_the_speed_of_links_is_what_nvlink_status_prints(text):
    found = read(text or matrix([["X", "NV2"], ["NV2", "X"]]) + LINKS.replace("\n", "\r\n"))
    (host,) = found.hosts
    assert [link.gbs for link in host.fabric] == [14.062, 14.062]
    assert [(gpu.name, gpu.uuid) for gpu in host.gpus] == [
        ("NVIDIA Thing", "GPU-0a"),
        ("NVIDIA Thing", "GPU-1b"),
    ]
    assert found.findings == ()


def test_a_speed_that_nobody_tells_is_called_assumed():
    found = read(matrix([["X", "NV2"], ["NV2", "X"]]))
    assert {link.method_of["gbs"] for link in found.hosts[0].fabric} == {"assumed"}
    (finding,) = found.findings
    assert finding.what == "assumed-speed"
    assert "20 GB/s is assumed; add what nvidia-smi nvlink -s prints" in finding.text


def test_a_matrix_of_paths_without_nvlinks_says_that_there_are_none():
    assert read(matrix([["X", "NODE"], ["NODE", "X"]])).findings == ()
    (finding,) = read(matrix([["X", "CNS"], ["CNS", "X"]])).findings
    assert finding.what == "nvlinks-unknown"


@pytest.mark.parametrize(
    "tag",
    [
        "> ",
        "[1,0]<stdout>:",
        "[1,0]<stdout>: ",
        "0: ",
        "gpu01: ",
        "2026-01-02T03:04:05.678Z ",
        "[2026-01-02 03:04:05] ",
    ],
)
def test_tags_of_launchers_and_logs_before_lines_are_no_part_of_the_matrix(tag):
    tagged = "".join(f"{tag}{line}\n" for line in (MODERN + LINKS).split("\n"))
    assert read(tagged).hosts == read(MODERN + LINKS).hosts


def test_a_table_of_markdown_is_a_matrix():
    text = "| | GPU0 | GPU1 |\n|---|---|---|\n| GPU0 | X | NV4 |\n| GPU1 | NV4 | X |\n"
    assert read(text).hosts == read("GPU0 GPU1\nGPU0 X NV4\nGPU1 NV4 X\n").hosts


@pytest.mark.parametrize(
    "said",
    [
        "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0a)\nGPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-1b)\n",
        "GPU 0: NVIDIA H100 80GB HBM3\nGPU 1: NVIDIA H100 80GB HBM3\n",
        "GPU 0,1: NVIDIA H100 80GB HBM3\n",
        "|   0  NVIDIA H100 80GB HBM3          On  |   00000000:1B:00.0 Off |                    0 |\n"
        "|   1  NVIDIA H100 80GB HBM3          On  |   00000000:43:00.0 Off |                    0 |\n",
    ],
)
def test_a_model_that_is_known_gives_the_speed_of_its_links(said):
    found = read(said + matrix([["X", "NV18"], ["NV18", "X"]]))
    assert {gpu.name for gpu in found.hosts[0].gpus} == {"NVIDIA H100 80GB HBM3"}
    assert {(link.gbs, link.version) for link in found.hosts[0].fabric} == {(20.6, "4.0")}
    assert found.findings == ()


@pytest.mark.parametrize(
    ("name", "gbs"),
    [
        ("NVIDIA A100-SXM4-40GB", 20.0),
        ("Tesla V100-SXM2-32GB", 20.0),
        ("Tesla P100-SXM2-16GB", 18.0),
        ("NVIDIA RTX A6000", 12.0),
        ("NVIDIA GB200", 40.1),
        ("NVIDIA GB300", 40.1),
        ("NVIDIA GH200 480GB", 20.6),
    ],
)
def test_speeds_of_models(name, gbs):
    found = read(f"GPU 0,1: {name}\n" + matrix([["X", "NV2"], ["NV2", "X"]]))
    assert {link.gbs for link in found.hosts[0].fabric} == {gbs}
