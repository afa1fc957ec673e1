import pytest
from faulty_profile import Faulty

from probes.link_costs import HostMemory, SentSegments
from probes.localization.links import tables_of
from probes.localization.model import Bought
from probes.localization.symptoms import inside_hosts, lossy_hosts, shunned, slow_processors, times_slower


def memory(*costs: float) -> list[HostMemory]:
    return [HostMemory(f"h{at}", (1024,), (1e-10 * cost,), (2e-10 * cost,)) for at, cost in enumerate(costs)]


def test_a_processor_is_compared_with_most_others():
    assert times_slower(memory(1, 1, 3)) == pytest.approx({"h0": 1, "h1": 1, "h2": 3})
    (fault,) = slow_processors(memory(1, 1, 3))
    assert (fault.kind, fault.parts, fault.sure) == ("cpu", ("h2",), "certain")
    assert "3.00 times as slowly" in fault.evidence[0] and "normal is 10" in fault.evidence[0]


def test_the_slower_of_two_processors_is_likely_slow():
    (fault,) = slow_processors(memory(2, 1))
    assert (fault.parts, fault.sure) == (("h0",), "likely")


def test_one_host_and_equal_hosts_have_no_slow_processor():
    assert list(slow_processors(memory(1))) == list(slow_processors(memory(1, 1.1, 0.9))) == []


def test_a_host_that_retransmits_is_lossy_unless_all_do():
    quiet = [SentSegments(f"h{at}", 10_000, 1) for at in range(3)]
    assert list(lossy_hosts([*quiet, SentSegments("bad", 10_000, 500)])) == ["bad"]
    assert lossy_hosts([SentSegments(f"h{at}", 10_000, 500) for at in range(4)]) == {}
    assert lossy_hosts([]) == {}


def test_packets_to_the_only_host_that_retransmits_nothing_get_lost():
    others = [SentSegments(f"h{at}", 10_000, 50) for at in range(3)]
    assert shunned([*others, SentSegments("bad", 10_000, 1)]) == "bad"
    assert shunned([*others, SentSegments("good", 10_000, 40)]) == ""
    assert shunned(others[:2]) == ""


def test_links_inside_all_hosts_are_compared_with_what_was_bought():
    net = Faulty(ranks=2)
    inside = tables_of(net.profile())[1]
    assert list(inside_hosts(inside, None)) == []
    (fault,) = inside_hosts(inside, Bought("8 GB/s", inside_bytes_per_s=8e9))
    assert (fault.kind, fault.parts) == ("inside", ("fabric",))
