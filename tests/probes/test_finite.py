"""Numbers that no record may hold, found with their paths."""

from dataclasses import dataclass

import pytest

from probes.base.finite import not_finite
from probes.base.identifiers import cpu_numbers, is_cpu_list
from probes.topology import Host, NumaNode, Topology


@dataclass(frozen=True)
class Inner:
    values: tuple[float, ...]


@dataclass(frozen=True)
class Outer:
    name: str
    inner: Inner
    table: dict[str, float]


def test_every_number_that_is_none_is_told_with_its_path():
    record = Outer("nan", Inner((1.0, float("nan"), 1 << 63)), {"a": float("-inf"), "b": -1e308})
    assert list(not_finite(record)) == [
        "inner.values[1]: expected a finite number, found nan",
        "inner.values[2]: expected an integer of at most 63 bits, found one of 64",
        "table.a: expected a finite number, found -inf",
    ]


@pytest.mark.parametrize("text", ["", "0", "0-23,48-71", "7,3"])
def test_lists_of_cpus_are_told_from_other_texts(text):
    assert is_cpu_list(text)
    assert len(cpu_numbers(text)) == len(set(cpu_numbers(text)))


@pytest.mark.parametrize(
    "text", ["x", "1-", "-1", "3-1", "0-99999999999", "0,,1", "²", "1 ", "0-" + "9" * 5000]
)
def test_a_topology_with_other_texts_as_cpus_is_refused(text):
    assert not is_cpu_list(text)
    host = Host("h", "test", 1, numa=(NumaNode(0, "test", cpus=text),))
    assert [problem.partition(":")[0] for problem in Topology((host,)).problems()] == [
        "hosts[0].numa[0].cpus"
    ]
