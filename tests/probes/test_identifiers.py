import pytest
from hypothesis import given, strategies as st

from probes.base.identifiers import (
    cpu_list,
    cpu_mask,
    cpu_numbers,
    is_hidden,
    mask_numbers,
    nccl_guid,
    normal_bus_id,
    plain_guid,
)
from probes.nccl.values import affinity_list


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("0000:1b:00.0", "0000:1b:00.0"),
        ("00000000:1B:00.0", "0000:1b:00.0"),
        ("1b:00.0", "0000:1b:00.0"),
        ("0:1:2.3", "0000:01:02.3"),
        ("0000000A:1B:00.0", "000a:1b:00.0"),
        ("10000:E1:00.0", "10000:e1:00.0"),
        ("fffffff:ff:ff.0", "fffffff:ff:ff.0"),
        (" 0000:1b:00.0\n", "0000:1b:00.0"),
    ],
)
def test_bus_ids_are_written_one_way(text, normal):
    assert normal_bus_id(text) == normal
    assert normal_bus_id(normal) == normal


@pytest.mark.parametrize("text", ["", "GPU0", "0000:1b:00", "0000:1b:00.9", "0000:1bb:00.0", "x:1b:00.0"])
def test_what_is_no_bus_id_is_refused(text):
    with pytest.raises(ValueError, match="expected a PCI bus id"):
        normal_bus_id(text)


@pytest.mark.parametrize(
    ("text", "hidden"),
    [("fffffff:ff:ff.0", True), ("FFFFFFFF:FF:FF.F", True), ("0000:ff:1f.0", False), ("ffff:ff:01.0", False)],
)
def test_the_bus_id_of_a_hidden_device(text, hidden):
    assert is_hidden(normal_bus_id(text)) == hidden


@given(st.sets(st.integers(0, 300)))
def test_cpu_lists_hold_their_numbers(numbers):
    found = set()
    for run in filter(None, cpu_list(numbers).split(",")):
        first, _, last = run.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    assert found == numbers


@pytest.mark.parametrize(
    ("text", "plain", "nccl"),
    [
        ("506b:4b03:0027:bbf2", "506b4b030027bbf2", "0xf2bb2700034b6b50"),
        ("0xf2bb2700034b6b50", "506b4b030027bbf2", "0xf2bb2700034b6b50"),
        ("0000:0000:0000:0000", "", "0000:0000:0000:0000"),
        ("0x3", "", "0x3"),
        ("", "", ""),
    ],
)
def test_a_guid_is_one_whoever_writes_it(text, plain, nccl):
    assert plain_guid(text) == plain
    assert nccl_guid(text) == nccl


@given(st.sets(st.integers(0, 300)))
def test_masks_and_lists_hold_the_same_cpus(cpus):
    listed = cpu_list(cpus)
    assert cpu_numbers(listed) == sorted(cpus)
    assert affinity_list(cpu_mask(listed)) == listed


@pytest.mark.parametrize("listed", ["0-3,2", "0-3,0-3", "2,0-1,1-3"])
def test_a_cpu_that_a_list_names_twice_is_once_in_its_mask(listed):
    assert cpu_mask(listed) == "0000000f"


@pytest.mark.parametrize(
    ("mask", "numbers"),
    [
        ("0x00000303,,0x3", [0, 1, 64 + 0, 64 + 1, 64 + 8, 64 + 9]),
        ("f" * 16384, [*range(4 * 16384)]),
        ("f" * 16385, []),
        ("0xf...f", []),
        ("0x0", []),
        ("", []),
        ("what", []),
    ],
)
def test_numbers_of_a_mask(mask, numbers):
    assert mask_numbers(mask) == numbers


@pytest.mark.parametrize(
    "text", ["0x", "0xzz", "0x" + "1" * 17, "506b", "506b:4b03:00c2:5d4g", "²" * 16, "", "x"]
)
def test_what_is_no_guid_is_told_from_one_and_written_as_it_stands(text):
    assert plain_guid(text) == ""
    assert nccl_guid(text) == text
