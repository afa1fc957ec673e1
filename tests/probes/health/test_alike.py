"""Hosts that should be equal: who differs from the majority."""

from hypothesis import given, strategies as st

from probes.health import GpuHealth, HostHealth, HostProblem, NicHealth, differences


def host(name, gpu="H100", board="MT_1", **alike):
    nic = NicHealth("ib0", rdma_device="mlx5_0", board=board)
    return HostHealth(name, alike=alike, nics=(nic,), gpus=(GpuHealth("0000:1b:00.0", name=gpu),))


def names(count, first=1):
    return [f"gpu{number:03}" for number in range(first, first + count)]


def test_hosts_that_differ_from_the_majority_are_named_each():
    hosts = [host(name, driver="550") for name in names(62)]
    hosts += [host("gpu063", driver="535"), host("gpu064", driver="535")]
    text = "driver is 535 (as on 2 hosts); it is 550 on 62 of 64 hosts of its kind"
    remedy = "install the driver 550 and restart the host"
    assert differences(hosts) == [
        HostProblem(name, "driver", "differs", "remark", text, remedy) for name in ("gpu063", "gpu064")
    ]


def test_equal_hosts_do_not_differ():
    assert differences([host(name, driver="550") for name in names(8)]) == []
    assert differences([]) == []


def test_two_hosts_cannot_tell_which_of_them_is_right():
    assert differences([host("a", driver="1"), host("b", driver="2")]) == []


def test_without_a_majority_both_camps_are_named_on_the_smaller():
    half = [host(name, kernel="6.8") for name in names(4)] + [
        host(name, kernel="5.15") for name in names(4, 5)
    ]
    (found,) = differences(half)
    assert found.host == "gpu005"
    assert "5.15 on 4 (gpu005, gpu006, gpu007, gpu008)" in found.text
    assert "6.8 on 4 (gpu001, gpu002, gpu003, gpu004)" in found.text
    three = [host(name, kernel="6.8") for name in names(3)]
    three += [host("x", kernel="6.1"), host("y", kernel="5.15"), host("z", kernel="5.15")]
    (found,) = differences(three)
    assert found.host == "x"


def test_hosts_of_another_kind_are_compared_among_themselves():
    hosts = [host(name, driver="550") for name in names(5)]
    hosts += [host(f"old{number}", gpu="V100", driver="470") for number in range(3)]
    assert differences(hosts) == []


def test_a_host_with_other_boards_is_told_among_hosts_with_its_gpus():
    hosts = [host(name) for name in names(5)] + [host("odd", board="MT_2")]
    (found,) = differences(hosts)
    assert (found.host, found.part) == ("odd", "rdma boards")
    assert "MT_2" in found.text and "MT_1" in found.text


def test_a_host_whose_driver_does_not_answer_stays_of_its_kind():
    facts = {"pci gpus": "1 x H100 SXM5 80GB"}
    hosts = [host(name, driver="550", **facts) for name in names(5)]
    hosts.append(HostHealth("gpu006", alike={**facts, "driver": "550"}, nics=hosts[0].nics))
    (found,) = differences(hosts)
    assert (found.host, found.part, found.severity) == ("gpu006", "gpus", "fault")


def test_a_host_without_its_rdma_boards_is_a_fault():
    hosts = [host(name) for name in names(5)]
    hosts.append(HostHealth("gpu006", gpus=hosts[0].gpus))
    (found,) = differences(hosts)
    assert (found.host, found.part, found.severity) == ("gpu006", "rdma boards", "fault")


def test_parts_that_differ_are_faults():
    hosts = [host(name, **{"rdma state ib0": "active"}) for name in names(5)]
    hosts.append(host("gpu006", **{"rdma state ib0": "down"}))
    (found,) = differences(hosts)
    assert (found.host, found.severity) == ("gpu006", "fault")


def test_a_lost_gpu_differs():
    hosts = [host(name) for name in names(4)]
    two = tuple(GpuHealth(f"0000:{bus}:00.0", name="H100") for bus in ("1b", "2b"))
    hosts = [HostHealth(one.host, nics=one.nics, gpus=two) for one in hosts]
    hosts.append(host("gpu005"))
    (found,) = differences(hosts)
    assert (found.host, found.part, found.severity) == ("gpu005", "gpus", "fault")
    assert found.text == "gpus is 1 x H100; it is 2 x H100 on 4 of 5 hosts of its kind"


def test_a_fact_that_a_host_could_not_read_is_not_held_against_it():
    hosts = [host(name, governor="performance") for name in names(4)]
    assert differences([*hosts, host("gpu005")]) == []


def test_of_many_hosts_that_differ_64_get_a_problem_and_all_count():
    hosts = [host(name, driver="550") for name in names(900)] + [
        host(name, driver="535") for name in names(100, 901)
    ]
    problems = differences(hosts)
    assert len(problems) == 64
    assert "(as on 100 hosts); it is 550 on 900 of 1000" in problems[0].text


HOSTS = st.lists(
    st.builds(
        host,
        st.integers(0, 200).map("n{:03}".format),
        st.sampled_from(["H100", "A100"]),
        st.sampled_from(["MT_1", "MT_2"]),
        kernel=st.sampled_from(["5.15", "6.8"]),
        driver=st.sampled_from(["535", "550", "560"]),
    ),
    max_size=90,
    unique_by=lambda one: one.host,
)


@given(HOSTS, st.randoms(use_true_random=False))
def test_the_order_of_the_hosts_does_not_matter(hosts, random):
    assert differences(random.sample(hosts, len(hosts))) == differences(hosts)


@given(HOSTS)
def test_a_host_with_the_value_of_most_is_never_named(hosts):
    for problem in differences(hosts):
        if problem.part in ("kernel", "driver") and "no value" not in problem.text:
            (one,) = (each for each in hosts if each.host == problem.host)
            alike = [
                each.alike[problem.part]
                for each in hosts
                if (each.gpus[0].name, each.nics[0].board) == (one.gpus[0].name, one.nics[0].board)
            ]
            assert 2 * alike.count(one.alike[problem.part]) < len(alike)
