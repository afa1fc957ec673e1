"""The facts on a job in a log of NCCL: versions, NICs, transports, rings, trees, algorithms, settings."""

import pytest
from hypothesis import given, strategies as st
from nccl_debug_logs import VERSION, hosts, nccl_debug_log

from exec.benchmark.foreign.nccl_debug import is_nccl_debug, parse_nccl_debug
from exec.benchmark.foreign.nccl_log import NcclChoice, NcclNic
from probes.base.errors import DataError


def read(text, name="nccl.log"):
    content = text.encode()
    assert is_nccl_debug(content)
    return parse_nccl_debug({name: content})


@pytest.fixture(scope="module")
def two():
    return read(nccl_debug_log(hosts("gpu1", "gpu2")))


def test_ranks_have_their_hosts_and_gpus(two):
    assert two.size == 8 and [one.rank for one in two.ranks] == list(range(8))
    assert [two.host_of(rank) for rank in (0, 3, 4, 7)] == ["gpu1", "gpu1", "gpu2", "gpu2"]
    assert (two.ranks[5].device, two.ranks[5].bus_id, two.ranks[5].complete) == (1, "2b000", True)
    assert [host.name for host in two.hosts] == ["gpu1", "gpu2"]
    assert dict(two.versions) == {f"NCCL version {VERSION}": ("gpu1",)}


def test_pairs_have_their_transport_channels_and_nics(two):
    assert two.transports() == {"P2P/CUMEM": 6, "NET/IB": 2}
    [path] = [one for one in two.paths if (one.source, one.target) == (3, 4)]
    assert (path.transport, path.channels, path.nics, path.receiving_nics) == (
        "NET/IB",
        (0, 1),
        (0, 1),
        (0, 1),
    )
    assert (path.gdr, path.receiving_gdr) == (True, True)
    assert {one.gdr for one in two.paths if one.transport == "P2P/CUMEM"} == {None}


def test_rings_trees_and_channels(two):
    assert two.channels == 2 and set(two.rings.values()) == {tuple(range(8))}
    assert two.trees[1] == {rank: rank - 1 for rank in range(8)}
    assert {(one.channels, one.nvls_channels, one.p2p_channels) for one in two.ranks} == {(2, 2, 4)}


def test_nics_interfaces_and_nvlink_sharp_of_hosts(two):
    for host in two.hosts:
        assert host.nics == (NcclNic("mlx5_0", 1, "IB"), NcclNic("mlx5_1", 1, "IB"))
        assert (host.interface, host.network, host.nvlink) == ("eth0", "IB", True)
        assert dict(host.gdr) == {"mlx5_0": "", "mlx5_1": ""}
        assert dict(host.nvls) == dict.fromkeys(range(4), True)


def test_algorithms_of_sizes_are_joined(two):
    assert two.choices == (
        NcclChoice("AllReduce", 1024, 65536, "TREE", "LL", 2),
        NcclChoice("AllReduce", 1 << 30, 1 << 30, "RING", "SIMPLE", 2),
    )


def test_old_versions_write_algorithms_as_numbers():
    log = read(
        "a:1:1 [0] NCCL INFO 8 Bytes -> Algo 0 proto 0 time 25.2\n"
        "a:1:1 [0] NCCL INFO 9 Bytes -> Algo 1 proto 2 time 9"
    )
    assert [(one.algorithm, one.protocol) for one in log.choices] == [("Tree", "LL"), ("Ring", "Simple")]


def test_a_job_without_a_finding_is_sound(two):
    assert two.findings() == []


@pytest.mark.parametrize("first", [True, False], ids=["since 2.18", "before"])
def test_versions_that_name_the_communicator_last_are_read_alike(first):
    changed = {name: {"first": first} for name in ("gpu1", "gpu2")}
    found = read(nccl_debug_log(hosts("gpu1", "gpu2", **changed)))
    assert found.transports() == {"P2P/CUMEM": 6, "NET/IB": 2}
    assert {one.channels for one in found.ranks} == {2} and found.findings() == []


@given(st.randoms(use_true_random=False))
def test_the_order_of_processes_does_not_matter(source):
    lines = nccl_debug_log(hosts("gpu1", "gpu2")).splitlines()
    keys = [line.partition(" ")[0] for line in lines]
    of_process = {key: [line for line, own in zip(lines, keys, strict=True) if own == key] for key in keys}
    source.shuffle(keys)
    shuffled = "".join(of_process[key].pop(0) + "\n" for key in keys)
    one, other = read(shuffled), read(nccl_debug_log(hosts("gpu1", "gpu2")))
    assert (one.ranks, one.paths, one.rings, one.trees) == (
        other.ranks,
        other.paths,
        other.rings,
        other.trees,
    )


def test_a_file_for_each_process_is_the_same_log(two):
    lines = nccl_debug_log(hosts("gpu1", "gpu2")).splitlines()
    files = {}
    for line in lines:
        files.setdefault(line.split(":")[1], []).append(line)
    found = parse_nccl_debug({name: "\n".join(own).encode() for name, own in files.items()})
    assert (found.ranks, found.paths, found.hosts) == (two.ranks, two.paths, two.hosts)


@pytest.mark.parametrize(
    "tag",
    ["[1,0]<stdout>:", "[2025-06-12 10:00:00] ", "10.3.35.83: ", "(Worker pid=62, ip=10.244.1.7) ", " | "],
)
def test_tags_of_launchers_are_passed_over(tag, two):
    text = nccl_debug_log(hosts("gpu1", "gpu2"))
    found = read("".join(f"{tag}{line}\n" for line in text.splitlines()))
    assert (found.ranks, found.paths, found.hosts) == (two.ranks, two.paths, two.hosts)


def test_other_output_and_torn_lines_between_are_passed_over(two):
    text = nccl_debug_log(hosts("gpu1", "gpu2"))
    torn = (
        "gpu1:1003:2003 [3] NCCL INFO Channel 00/0 : 3[3] -> 4[0] [send] via NET/IB/0/GDRstep 3, loss 2.1\n"
    )
    found = read(f"epoch 1\n{torn}{text}NCCL\n\xff{text}")
    assert found.transports() == two.transports() and found.findings() == []


@pytest.mark.parametrize(
    ("via", "transport", "nics", "gdr"),
    [
        ("P2P/direct pointer/read", "P2P/direct", (), None),
        ("P2P/IPC/read/CE", "P2P/IPC", (), None),
        ("P2P/MNNVL", "P2P/MNNVL", (), None),
        ("P2P/indirect/3[3]", "P2P/indirect", (), None),
        ("SHM/direct/direct", "SHM", (), None),
        ("direct shared memory", "SHM", (), None),
        ("NET/IB/3(2)/GDRDMA/Shared", "NET/IB", (3,), True),
        ("NET/AWS Libfabric/1/GDRDMA(PCI)", "NET/AWS Libfabric", (1,), True),
        ("NET/Socket/0/Shared", "NET/Socket", (0,), False),
    ],
)
def test_the_transports_of_all_versions(via, transport, nics, gdr):
    start = "a:1:2 [0] NCCL INFO "
    named = f"{start}comm 0x5 rank 0 nranks 2 cudaDev 0 busId 1000 commId 0x1 - Init START\n"
    [path] = read(f"{named}{start}Channel 03/1 : 0[1a000] -> 1[1b000] [send] via {via}").paths
    assert (path.transport, path.nics, path.gdr, path.channels) == (transport, nics, gdr, (3,))


def test_the_largest_communicator_is_told_and_the_others_are_counted(two):
    start = "gpu1:1000:9 [0] NCCL INFO "
    pair = (
        f"{start}ncclCommSplit comm 0x9 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1b000 parent 0x5 color 1"
        " key 6 - Init START\n"
        f"{start}Channel 00/0 : 0[0] -> 1[1] via SHM/direct/direct\n"
        "gpu1:1001:9 [1] NCCL INFO ncclCommSplit comm 0x8 rank 1 nranks 2 cudaDev 1 nvmlDev 1 busId 2b000"
        " parent 0x4 childCount 1 color 1 key 7 - Init COMPLETE\n"
    )
    found = read(nccl_debug_log(hosts("gpu1", "gpu2")) + pair)
    assert (found.communicators, found.size) == (2, 8) and found.paths == two.paths


def test_efa_and_merged_nics():
    log = read(
        "a:1:2 [0] NCCL INFO NET/OFI Selected Provider is efa (found 4 nics)\n"
        "a:1:2 [0] NCCL INFO Using network AWS Libfabric\n"
        "b:1:2 [0] NCCL INFO NET/IB : Using [0]={[0] mlx5_0:1/RoCE, [1] mlx5_1:1/RoCE} [RO]; OOB eth0:1<0>\n"
        "b:1:2 [0] NCCL INFO NCCL_IB_HCA set to mlx5\n"
    )
    a, b = log.hosts
    assert [nic.link_layer for nic in a.nics] == ["efa"] * 4 and a.network == "AWS Libfabric"
    assert [nic.name for nic in b.nics] == ["mlx5_0", "mlx5_1"]
    assert {name: dict(values) for name, values in log.environment.items()} == {
        "NCCL_IB_HCA": {"mlx5": ("b",)}
    }


@pytest.mark.parametrize(
    ("content", "is_log"),
    [
        (b"a:1:2 [0] NCCL INFO Using network IB", True),
        (b"misc/ibvwrap.cc:63 NCCL WARN Failed to open libibverbs.so[.1]", True),
        (b'{"text": "a:1:2 [0] NCCL INFO Using network IB"}', False),
        (b'[{"text": "NCCL INFO x"}]', False),
        (b"NCCL version 2.21.5+cuda12.4", False),
        (b"", False),
    ],
)
def test_a_log_is_known_by_its_lines(content, is_log):
    assert is_nccl_debug(content) == is_log


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nothing", "expected a log of NCCL"),
        (
            "NCCL INFO comm 0x1 rank 7 nranks 7 cudaDev 0 busId 1 - Init START",
            "numbered from 0, found rank 7 of 7",
        ),
        ("NCCL INFO comm 0x1 rank 7 nranks 9999999 cudaDev 0 busId 1 - Init START", "at most 1048576 ranks"),
    ],
)
def test_what_no_job_can_log_is_refused(text, said):
    with pytest.raises(DataError, match=said):
        parse_nccl_debug({"f": text.encode()})


LINES = nccl_debug_log(hosts("gpu1", "gpu2", gpu2={"gdr": "no module", "channels": 1})).splitlines()


@given(st.data())
def test_no_damage_breaks_the_reader(data):
    """Lines lose characters, are cut, joined and repeated."""
    source = data.draw(st.randoms(use_true_random=False))
    lines = source.sample(LINES, data.draw(st.integers(1, 40)))
    damaged = [_damaged(line, source) for line in lines]
    content = source.choice(["\n", "", "\r\n", " "]).join(damaged).encode()
    is_nccl_debug(content)
    try:
        found = parse_nccl_debug({"f": content})
    except DataError:
        return
    assert all(one.text for one in found.findings())


def _damaged(line, source):
    at, end = sorted(source.choices(range(len(line) + 1), k=2))
    return source.choice(
        [line, line[:at], line[at:end], line[:at] + line[end:], line[:at] + "9" * 30 + line[at:]]
    )


@given(st.binary())
def test_no_bytes_break_the_reader(content):
    is_nccl_debug(content)
    try:
        parse_nccl_debug({"f": b"a:1:2 [0] NCCL INFO " + content}).findings()
    except DataError:
        return
