import pytest
from hypothesis import given, strategies as st

from exec.launcher.nodeset import MOST_RANKS, HostSlots, expand, fold, parse, read_hostfile
from probes.base.errors import DataError, MissingInputError, UsageError


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("login", {"login": 1}),
        ("login:3", {"login": 3}),
        ("gpu[01-03]:4", {"gpu01": 4, "gpu02": 4, "gpu03": 4}),
        ("gpu[01-02]:4,login1:2", {"gpu01": 4, "gpu02": 4, "login1": 2}),
        ("a[1-3,7]-b[0-1]", dict.fromkeys([f"a{i}-b{j}" for i in (1, 2, 3, 7) for j in (0, 1)], 1)),
        ("n[8-11]", {"n8": 1, "n9": 1, "n10": 1, "n11": 1}),
        ("n[098-101]", {"n098": 1, "n099": 1, "n100": 1, "n101": 1}),
        ("a, b:2", {"a": 1, "b": 2}),
        ("a,b,a:2", {"a": 3, "b": 1}),
        ("gpu[1-2]*4", {"gpu1": 4, "gpu2": 4}),
        ("10.77.0.1:2", {"10.77.0.1": 2}),
        ("rack1.[1-2].example.org", {"rack1.1.example.org": 1, "rack1.2.example.org": 1}),
    ],
)
def test_a_node_set_stands_for_its_hosts(text, hosts):
    assert [(entry.host, entry.slots) for entry in parse(text)] == list(hosts.items())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not a host name"),
        ("a,,b", "not a host name"),
        ("gpu[1-", "without its ]"),
        ("gpu1]", "without its ["),
        ("gpu[1[2]]", "without its ]"),
        ("gpu[3-1]", "backwards"),
        ("gpu[a-b]", "expected numbers"),
        ("gpu[]", "expected numbers"),
        ("gpu1:0", "positive number of slots"),
        ("gpu1:x", "positive number of slots"),
        ("gpu1:", "positive number of slots"),
        ("gpu 1", "not a host name"),
        ("-x", "not a host name"),
        ("a;b", "not a host name"),
        ("n[0-999999999]", "more than"),
        ("n[1-999][1-999]", "more than"),
        ("h[1-300000]", "more than 65536 hosts"),
        ("h[1-99999999999]", "more than 65536 hosts"),
        ("h[1-40000,1-40000]", "more than 65536 hosts"),
        ("h[1-40000],g[1-40000]", "at most 65536 slots"),
        ("h[1-65536]," * 1000 + "h", "at most 65536 slots"),
        ("h[1-40000]:2", "at most 65536 slots"),
        ("a:65537", "at most 65536 slots"),
        ("a:²", "positive number of slots"),
        ("a:٣", "positive number of slots"),
        ("a:" + "9" * 5000, "positive number of slots"),
        ("a:1_0", "positive number of slots"),
        ("n[٣-٤]", "expected numbers"),
        ("n[1-" + "9" * 5000 + "]", "expected numbers"),
        ("n[" + "0" * 5000 + "1]", "expected numbers"),
        ("a" * 254, "up to 253 letters"),
        ("a" + "[1-2]" * 16 + "[1]" * 10000, "up to 253 letters"),
        ("a\x1b[2J", "without its ]"),
        ("n[1-010]", "1 and 3 digits"),
        ("n[0-007]", "1 and 3 digits"),
        ("a*0", "positive number of slots after 'a'*"),
        ("me@gpu1", "expected a host alone, found 'me@gpu1'"),
        ("me@gpu1:4", "expected a host alone"),
        ("2001:db8::5", "found the IPv6 address '2001:db8::5'"),
        ("::1", "found the IPv6 address '::1'"),
        ("[fe80::1]:4", "found the IPv6 address 'fe80::1'"),
        ("gpu1,[2001:db8::5]", "found the IPv6 address '2001:db8::5'"),
        ("fe80::1%eth0", "found the IPv6 address 'fe80::1%eth0'"),
        ("[fe80::1%eth0]:2", "found the IPv6 address 'fe80::1%eth0'"),
    ],
)
def test_a_node_set_that_cannot_be_read_is_refused(text, said):
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert said in caught.value.message
    assert len(caught.value.message) < 500
    assert caught.value.message.isprintable()


def test_hosts_up_to_the_bound_are_read():
    assert len(parse(f"h[1-{MOST_RANKS}]")) == MOST_RANKS
    assert parse("a[1-2],b:3", slots=2) == (HostSlots("a1", 2), HostSlots("a2", 2), HostSlots("b", 3))


@given(st.integers(0, 200), st.integers(0, 50), st.integers(0, 5))
def test_a_range_counts_up_with_its_width(first, more, zeros):
    start = "0" * zeros + str(first)
    names = expand(f"n[{start}-{first + more}]")
    assert [int(name[1:]) for name in names] == list(range(first, first + more + 1))
    assert names[0] == f"n{start if start.startswith('0') else first}"


@pytest.mark.parametrize(
    ("content", "hosts"),
    [
        ("a\nb slots=4\n", [HostSlots("a", 1), HostSlots("b", 4)]),
        ("# ours\n\na:2  # two\n b slots=3 max_slots=8\n", [HostSlots("a", 2), HostSlots("b", 3)]),
        ("gpu[01-02] slots=8", [HostSlots("gpu01", 8), HostSlots("gpu02", 8)]),
        ("a\na\n", [HostSlots("a", 2)]),
        ("a slots=2\nb\na slots=3\n", [HostSlots("a", 5), HostSlots("b", 1)]),
        (
            "a max-slots=4\nb max_slots=2\nc slots_max=3",
            [HostSlots(*x) for x in (("a", 4), ("b", 2), ("c", 3))],
        ),
        ("a slots = 4 max_slots = 8\n", [HostSlots("a", 4)]),
        ("a cpu=2\nb np=3\nc count=4\n", [HostSlots(*x) for x in (("a", 2), ("b", 3), ("c", 4))]),
        ("a 4\nb*2\n", [HostSlots("a", 4), HostSlots("b", 2)]),
        ("a:4 slots=4\n", [HostSlots("a", 4)]),
        ("\ufeffa:4 \r\n\r\nb slots=2\t\r\n", [HostSlots("a", 4), HostSlots("b", 2)]),
    ],
)
def test_a_hostfile_names_hosts_line_by_line(tmp_path, content, hosts):
    path = tmp_path / "hosts"
    path.write_text(content)
    assert list(read_hostfile(str(path))) == hosts


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("a slots=0", "found 'slots=0'"),
        ("a slots=-2", "found 'slots=-2'"),
        ("a max-slots=0", "found 'max-slots=0'"),
        ("a 0", "found '0'"),
        ("a:4 slots=2", "2 and 4 slots"),
        ("a slots=4 slots=2", "4 and 2 slots"),
        ("a slots=4 max-slots=2", "has 4 slots, and at most 2"),
        ("a b", "expected slots=N after 'a', found 'b'"),
        ("a 4 all.q@a", "found '4'"),
        ("root@a slots=4", "expected a host alone"),
        ("[fe80::1]:4", "IPv6 address"),
        ("2001:db8::5 slots=4", "IPv6 address"),
    ],
)
def test_a_line_of_a_hostfile_that_says_no_number_of_slots_is_refused(tmp_path, line, said):
    path = tmp_path / "hosts"
    path.write_text(line + "\n")
    with pytest.raises(DataError) as caught:
        read_hostfile(str(path))
    assert said in caught.value.problems[0]


def test_every_wrong_line_of_a_hostfile_is_told(tmp_path):
    path = tmp_path / "hosts"
    path.write_text("a cores=4\nb\nc:x\n")
    with pytest.raises(DataError) as caught:
        read_hostfile(str(path))
    assert [problem.split(":")[0] for problem in caught.value.problems] == ["line 1", "line 3"]


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("h[1-40000]\nh[1-40000]\n" + "h[1-65536]\n" * 10_000, "line 2"),
        ("a slots=²", "line 1"),
        ("a slots=" + "9" * 5000, "line 1"),
        ("a slots=99999", "line 1"),
        ("b" * 70_000, "line 1"),
    ],
)
def test_a_hostfile_is_bounded_before_anything_is_made(tmp_path, content, line):
    path = tmp_path / "hosts"
    path.write_text(content)
    with pytest.raises(DataError) as caught:
        read_hostfile(str(path))
    assert [problem.split(":")[0] for problem in caught.value.problems] == [line]
    assert len(caught.value.message) < 500


def test_of_a_hostfile_that_is_wrong_everywhere_the_first_lines_are_told(tmp_path):
    path = tmp_path / "hosts"
    path.write_text("-x\n" * 5000)
    with pytest.raises(DataError, match="and 4900 more problems") as caught:
        read_hostfile(str(path))
    assert len(caught.value.message.splitlines()) == 101


@pytest.mark.parametrize("content", ["", "# nobody\n"])
def test_a_hostfile_without_hosts_is_refused(tmp_path, content):
    path = tmp_path / "hosts"
    path.write_text(content)
    with pytest.raises(DataError, match="found none"):
        read_hostfile(str(path))


def test_a_hostfile_that_is_not_there_or_not_text(tmp_path):
    with pytest.raises(MissingInputError):
        read_hostfile(str(tmp_path / "none"))
    (tmp_path / "raw").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError):
        read_hostfile(str(tmp_path / "raw"))


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ("", ""),
        ("login", "login"),
        ("gpu01 gpu02", "gpu[01-02]"),
        ("gpu04 gpu02 gpu01 gpu02", "gpu[01-02,04]"),
        ("n9 n10 n08 n09", "n[08-10,9]"),
        ("a1-b0 a1-b1 a2-b0 a2-b1", "a[1-2]-b[0-1]"),
        ("a1-b0 a1-b1 a2-b0", "a1-b[0-1],a2-b0"),
        ("gpu2 gpu10 gpu1", "gpu[1-2,10]"),
        ("10.77.0.1 10.77.0.2", "10.77.0.[1-2]"),
        ("b1 a a1 b2", "a,a1,b[1-2]"),
        (f"n{'9' * 5000} n1 n2", f"n[1-2],n{'9' * 5000}"),
    ],
)
def test_names_fold_into_a_node_set(names, text):
    assert fold(names.split()) == text


@given(
    st.sets(
        st.from_regex(r"[a-b]{0,2}[0-9]{1,3}(-[a-b]?[0-9]{0,2}){0,2}", fullmatch=True),
        min_size=1,
        max_size=12,
    )
)
def test_folding_and_expanding_again_loses_and_adds_nothing(names):
    text = fold(names)
    again = [entry.host for entry in parse(text)]
    assert sorted(again) == sorted(names)
    assert fold(again) == text
