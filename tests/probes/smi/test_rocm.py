import json

import pytest

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
