import json

import pytest
from hypothesis import given, strategies as st

from probes.base.errors import DataError
from probes.detection import merge
from probes.paths.path_type import Paths
from probes.smi.rocm import is_json

RULE = "=" * 20


def rocm_table(title, names, word):
    """One table of rocm-smi; ``word`` of two numbers is its cell."""
    rows = [f"{name}   " + "  ".join(word(a, b) for b in range(len(names))) for a, name in enumerate(names)]
    return "\n".join([title, "       " + "   ".join(names), *rows]) + "\n\n"


def types(a, b):
    return "0" if a == b else "XGMI" if a // 2 == b // 2 else "PCIE"


def hops(a, b):
    return "0" if a == b else "1" if a // 2 == b // 2 else "3"


NAMES = ["GPU0", "GPU1", "GPU2", "GPU3"]
NUMA = "".join(
    f"GPU[{n}]\t\t: (Topology) Numa {what}: {n // 2}\n" for n in range(4) for what in ("Node", "Affinity")
)
TEXT = (
    f"{RULE} ROCm System Management Interface {RULE}\n"
    + rocm_table(f"{RULE} Weight between two GPUs {RULE}", NAMES, lambda a, b: str(15 * (a != b)))
    + rocm_table(f"{RULE} Hops between two GPUs {RULE}", NAMES, hops)
    + rocm_table(f"{RULE} Link Type between two GPUs {RULE}", NAMES, types)
    + f"{RULE} Numa Nodes {RULE}\n{NUMA}{RULE} End of ROCm SMI Log {RULE}\n"
)
JSON = json.dumps(
    {f"card{n}": {"(Topology) Numa Node": str(n // 2)} for n in range(4)}
    | {
        "system": {
            f"(Topology) {what} between DRM devices {a} and {b}": word(a, b)
            for what, word in (("Link type", types), ("Hops", hops))
            for a in range(4)
            for b in range(a + 1, 4)
        }
    }
)
BUSES = [f"0000:{n}1:00.0" for n in range(4)]
AMD_SMI = rocm_table("WEIGHT TABLE:", BUSES, lambda a, b: "15") + rocm_table(
    "LINK TYPE TABLE:", BUSES, lambda a, b: "SELF" if a == b else types(a, b)
)


# Half of a node of MI250X: in each pair of GPUs the weight is 15 for each xGMI link on the way.
WEIGHTS = [[0, 15, 15, 30], [15, 0, 30, 15], [15, 30, 0, 15], [30, 15, 15, 0]]
ALL_XGMI = (
    f"{RULE} ROCm System Management Interface {RULE}\n"
    + rocm_table(f"{RULE} Weight between two GPUs {RULE}", NAMES, lambda a, b: str(WEIGHTS[a][b]))
    + rocm_table(f"{RULE} Hops between two GPUs {RULE}", NAMES, lambda a, b: str(int(a != b)))
    + rocm_table(f"{RULE} Link Type between two GPUs {RULE}", NAMES, lambda a, b: "XGMI" if a != b else "0")
)
RATES = [[0, 200, 100, 0], [200, 0, 0, 50], [100, 0, 0, 200], [0, 50, 200, 0]]


def rate(a, b):
    """The range that amd-smi prints: MB/s of one link and of all."""
    return "N/A" if a == b else f"{50000 * bool(RATES[a][b])}-{1000 * RATES[a][b]}"


def amd_json(**changes):
    """Return the output of amd-smi topology --json for four GPUs; ``changes`` replace values of links."""
    links = [
        [
            {
                "gpu": b,
                "bdf": BUSES[b],
                "weight": WEIGHTS[a][b],
                "link_status": "ENABLED",
                "link_type": "SELF" if a == b else "XGMI",
                "num_hops": int(a != b),
                "bandwidth": rate(a, b),
                "coherent": "SELF" if a == b else "C",
                **changes,
            }
            for b in range(4)
        ]
        for a in range(4)
    ]
    return json.dumps([{"gpu": a, "bdf": BUSES[a], "links": links[a]} for a in range(4)], indent=4)


def joined(host):
    return {(host.gpus[a].bus_id, host.gpus[b].bus_id) for a, b in ((0, 1), (0, 2), (1, 3), (2, 3))}


def read(text):
    return merge.from_file(text.encode(), "box.txt")


@pytest.mark.parametrize("text", [TEXT, JSON, TEXT.replace("\n", "\r\n"), f"```\n{TEXT}```\n"])
def test_xgmi_inside_each_pair_and_pcie_between_them(text):
    (host,) = read(text).hosts
    assert [(gpu.index, gpu.vendor, gpu.numa) for gpu in host.gpus] == [(n, "amd", n // 2) for n in range(4)]
    assert (host.fabric_links(), {link.kind for link in host.fabric}) == (2, {"xgmi"})
    between = Paths(host).between
    found = [between(host.gpus[0], gpu) for gpu in host.gpus]
    assert found == ["LOC", "NVL", "SYS", "SYS"]


def test_number_and_speed_of_links_are_assumed_and_said_to_be():
    found = read(TEXT)
    assert found.problems() == []
    assert any("one is assumed" in note for note in found.notes)
    assert [finding.what for finding in found.findings] == ["assumed-speed"]


def test_amd_smi_names_pci_functions():
    (host,) = read(AMD_SMI).hosts
    assert [gpu.bus_id for gpu in host.gpus] == BUSES
    assert {(link.source, link.target) for link in host.fabric} == {
        (BUSES[a], BUSES[b]) for a, b in ((0, 1), (1, 0), (2, 3), (3, 2))
    }


def test_gpus_that_pcie_alone_joins_have_no_links():
    found = read(TEXT.replace("XGMI", "PCIE"))
    assert found.hosts[0].fabric == ()
    assert found.findings == ()


def test_xgmi_over_another_gpu_is_no_link_between_these_two():
    (host,) = read(ALL_XGMI).hosts
    assert {tuple(sorted((link.source, link.target))) for link in host.fabric} == joined(host)
    assert Paths(host).between(host.gpus[0], host.gpus[3]) == "NVB"
    as_json = {
        f"(Topology) {what} between DRM devices {a} and {b}": word(a, b)
        for what, word in (("Link type", lambda a, b: "XGMI"), ("Weight", lambda a, b: str(WEIGHTS[a][b])))
        for a in range(4)
        for b in range(a + 1, 4)
    }
    assert read(json.dumps({"system": as_json})).hosts[0].fabric == host.fabric


def test_a_driver_without_weights_and_rates_leaves_the_hops():
    text = AMD_SMI.replace("15", "0") + rocm_table("NUMA BW TABLE:", BUSES, lambda a, b: "0-0")
    assert read(text).hosts[0].fabric_links() == 2


@pytest.mark.parametrize(
    "text",
    [
        amd_json(),
        amd_json(weight="N/A", num_hops="N/A"),
        "\n" + amd_json(),
        rocm_table("LINK TYPE TABLE:", BUSES, lambda a, b: "SELF" if a == b else "XGMI")
        + rocm_table("NUMA BW TABLE:", BUSES, rate),
        ALL_XGMI.replace("15", "0").replace("30", "0")
        + rocm_table(f"{RULE} Bandwidth {RULE}", NAMES, rate)
        + "Format: min-max; Units: mps\n",
    ],
)
def test_the_range_of_rates_tells_number_and_speed_of_links(text):
    found = read(text)
    (host,) = found.hosts
    links = {tuple(sorted((link.source, link.target))): (link.count, link.gbs) for link in host.fabric}
    gpus = [gpu.bus_id for gpu in host.gpus]
    assert links == {
        (gpus[0], gpus[1]): (4, 50.0),
        (gpus[0], gpus[2]): (2, 50.0),
        (gpus[1], gpus[3]): (1, 50.0),
        (gpus[2], gpus[3]): (4, 50.0),
    }
    assert host.fabric_links() == 11
    assert (found.notes, found.findings) == ((), ())


def test_json_of_amd_smi_names_pci_functions_in_the_order_of_its_numbers():
    gpus = json.loads(amd_json())
    (host,) = read(json.dumps(gpus[::-1])).hosts
    assert [(gpu.index, gpu.bus_id) for gpu in host.gpus] == list(enumerate(BUSES))
    for gpu in gpus:
        gpu["bdf"] = "N/A"
    (host,) = read(json.dumps(gpus)).hosts
    assert [gpu.bus_id for gpu in host.gpus] == ["gpu0", "gpu1", "gpu2", "gpu3"]


def test_node_0_stays_where_the_affinity_is_unknown():
    (host,) = read(TEXT.replace("Affinity: 0", "Affinity: -1")).hosts
    assert [gpu.numa for gpu in host.gpus] == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (amd_json()[:-1], "the JSON of amd-smi"),
        (amd_json(link_type=3), "the JSON of amd-smi"),
        (json.dumps(json.loads(amd_json()) * 2), "a GPU is there a second time"),
        (amd_json(gpu=7), "found none for 6 pairs"),
        (json.dumps([{"gpu": n, "links": [], "link_type": {}} for n in range(257)]), "from 0 to 255"),
        (amd_json().replace('"gpu": 3', '"gpu": -3'), "from 0 to 255"),
        (amd_json().replace('"gpu": 3', '"gpu": 1' + "0" * 40), "amd-smi"),
        (
            json.dumps({f"card{n}": {"(Topology) Numa Node": "0"} for n in range(5000)}),
            "of 1 to 256 GPUs, found 5000 GPUs",
        ),
    ],
)
def test_json_that_is_no_whole_table_is_refused_in_one_line(text, said):
    with pytest.raises(DataError) as caught:
        read(text)
    assert len(caught.value.problems) == 1
    assert said in caught.value.problems[0]


SAMPLES = [TEXT, JSON, AMD_SMI, ALL_XGMI, amd_json()]


@given(st.sampled_from(SAMPLES), st.integers(0, 4000), st.text(max_size=9), st.integers(0, 9))
def test_a_changed_text_is_read_or_refused(text, at, inside, gone):
    try:
        found = merge.from_file((text[:at] + inside + text[at + gone :]).encode(errors="replace"), "odd.txt")
    except DataError as error:
        assert error.problems
        return
    assert found.problems() == []


def test_a_way_of_two_xgmi_links_is_none_between_these_two():
    text = TEXT.replace("GPU0   0  1", "GPU0   0  2").replace("GPU1   1  0", "GPU1   2  0")
    assert read(text).hosts[0].fabric_links() == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TEXT[: TEXT.index(f"{RULE} Link Type")], "found 0 GPUs"),
        (TEXT.replace("GPU1   XGMI  0  PCIE  PCIE\n", ""), ""),
        (TEXT.replace("GPU2   PCIE", "GPU2").replace("GPU3   PCIE", "GPU3"), "GPU2 and GPU3 first"),
        (JSON.replace("Link type", "Kind"), "found none for 6 pairs"),
        (JSON[:-1], "the JSON of rocm-smi"),
        ("[" * 50000 + "(Topology)", "found 0 GPUs"),
    ],
)
def test_what_is_no_whole_table_is_refused_in_one_line(text, said):
    if not said:
        assert read(text).hosts[0].fabric_links() == 2  # the other direction says it
        return
    with pytest.raises(DataError) as caught:
        read(text)
    assert len(caught.value.problems) == 1
    assert said in caught.value.problems[0]
    assert "rocm-smi --showtopo" in caught.value.hint


def test_json_of_rocm_smi_is_told_from_an_artifact():
    assert is_json(JSON.encode())
    assert not is_json(b'{"schema": "ccctl/topology/1", "body": {}}')


def with_facts(**facts):
    """Return the JSON with these facts of each card; "%d" is the card's number."""
    document = json.loads(JSON)
    for n in range(4):
        document[f"card{n}"] |= {key: word.replace("%d", str(n)) for key, word in facts.items()}
    return json.dumps(document).encode()


@pytest.mark.parametrize("series", ["Card series", "Card Series"])
def test_json_with_products_names_gpus_their_places_memory_and_architecture(series):
    told = {
        series: "Arcturus GL-XL [Instinct MI100]",
        "PCI Bus": "0000:8%d:00.0",
        "VRAM Total Memory (B)": "34342961152",
        "GFX Version": "gfx908",
    }
    (host,) = merge.combined([merge.read_file(with_facts(**told), "showtopo.json")]).hosts
    gpu = host.gpus[3]
    assert (gpu.bus_id, gpu.index, gpu.numa) == ("0000:83:00.0", 3, 1)
    assert (gpu.name, gpu.memory_bytes, gpu.arch) == (told[series], 34342961152, "gfx908")
    assert {(link.source, link.target) for link in host.fabric} >= {("0000:80:00.0", "0000:81:00.0")}


@pytest.mark.parametrize("bus", ["0000:80:00.0", "N/A", ""])
def test_gpus_without_bus_ids_of_their_own_keep_their_numbers(bus):
    (host,) = merge.combined([merge.read_file(with_facts(**{"PCI Bus": bus}), "showtopo.json")]).hosts
    assert [gpu.bus_id for gpu in host.gpus] == ["gpu0", "gpu1", "gpu2", "gpu3"]


def test_a_number_is_no_name():
    text = with_facts(**{"Card series": "0x1002"})
    (host,) = merge.combined([merge.read_file(text, "showtopo.json")]).hosts
    assert {gpu.name for gpu in host.gpus} == {""}
