"""Descriptions of labs, and the grammar of their rates."""

from pathlib import Path

import pytest

from ccctl.lab.rates import reshaped
from ccctl.lab.toml import read_lab
from exec.lab.model import MOST_HOSTS
from probes.base import format_rate, parse_rate
from probes.base.errors import DataError, MissingInputError, UsageError

MBIT = 125_000
SAMPLE = Path(__file__).parents[3] / "examples" / "lab4.toml"


@pytest.fixture
def described(tmp_path):
    """A function that reads a description from text."""

    def read(text):
        (tmp_path / "small.toml").write_text(text)
        return read_lab(str(tmp_path / "small.toml"))

    return read


def rates(lab):
    names = [host.name for host in lab.hosts]
    found = {f"{a}{b}": lab.rate_bytes_per_s(a, b) for a in names for b in names if a != b}
    return {path: rate and rate / MBIT for path, rate in found.items()}


def test_the_sample_is_what_it_says():
    lab = read_lab(str(SAMPLE))
    assert (lab.name, [host.name for host in lab.hosts]) == ("lab4", ["gpu1", "gpu2", "gpu3", "gpu4"])
    assert lab.rate_bytes_per_s("gpu1", "gpu2") == 20 * MBIT
    assert lab.rate_bytes_per_s("gpu2", "gpu1") == 100 * MBIT
    assert {lab.rate_bytes_per_s("gpu3", f"gpu{other}") for other in (1, 2, 4)} == {40 * MBIT}


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("hosts = 2", "host1:1,host2:1"),
        ("hosts = 'n[08-10]'\nslots = 3", "n08:3,n09:3,n10:3"),
        ("hosts = ['a:2', 'b']", "a:2,b:1"),
        ("hosts = 'a,b:4'\nslots = 2", "a:2,b:4"),
    ],
)
def test_hosts_are_a_number_or_node_sets(described, text, hosts):
    lab = described(text)
    assert (lab.name, lab.slots()) == ("small", hosts)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {"ab": None, "ac": None, "ba": None, "bc": None, "ca": None, "cb": None}),
        ("rate = '8Mbit/s'", {"ab": 8, "ac": 8, "ba": 8, "bc": 8, "ca": 8, "cb": 8}),
        ("[rates]\na = '1MB/s'", {"ab": 8, "ac": 8, "ba": 8, "bc": None, "ca": 8, "cb": None}),
        ("[rates]\na.egress = '8Mbit/s'", {"ab": 8, "ac": 8, "ba": None, "bc": None, "ca": None, "cb": None}),
        (
            "[rates]\n'a.ingress' = '8Mbit/s'",
            {"ab": None, "ac": None, "ba": 8, "bc": None, "ca": 8, "cb": None},
        ),
        (
            "[rates]\n'a->c' = '8Mbit/s'",
            {"ab": None, "ac": 8, "ba": None, "bc": None, "ca": None, "cb": None},
        ),
        (
            "rate = '9Mbit/s'\n[rates]\n'a,b -> c' = '8Mbit/s'\na = 'unlimited'",
            {"ab": 9, "ac": 8, "ba": 9, "bc": 8, "ca": 9, "cb": 9},
        ),
        (
            "racks = [['a', 'b'], ['c']]\ntrunk = '5Mbit/s'\nrate = '8Mbit/s'",
            {"ab": 8, "ac": 5, "ba": 8, "bc": 5, "ca": 5, "cb": 5},
        ),
    ],
)
def test_a_path_carries_the_least_on_its_way(described, text, expected):
    text = f"hosts = ['a', 'b', 'c']\n{text}"
    assert rates(described(text)) == expected


def test_every_problem_is_named_with_its_path(described):
    text = """
        name = "a/b"
        hosts = ["gpu[1-2", 7, "ok[1-2]", "ok2"]
        slots = 0
        speed = "1Mbit/s"
        rate = 100
        racks = [["ok1", "ok1"], ["nobody"]]
        [rates]
        "ok1 -> ok1" = "1Mbit/s"
        "ok1 -> ok2" = "fast"
        "nobody.egress" = "1Mbit/s"
    """
    with pytest.raises(DataError) as caught:
        described(text)
    paths = [problem.split(": ")[0] for problem in caught.value.problems]
    assert set(paths) == {
        "name", "hosts[0]", "hosts[1]", "hosts", "slots", "speed", "rate", "racks", "racks[1][0]",
        'rates."ok1 -> ok1"', 'rates."ok1 -> ok2"', 'rates."nobody.egress"',
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("", "hosts"),
        ("hosts = 0", "hosts"),
        ("hosts = []", "hosts"),
        (f"hosts = {MOST_HOSTS + 1}", "hosts"),
        ("hosts = 2\nrates = 'all'", "rates"),
        ("hosts = 2\ntrunk = '1Mbit/s'", "trunk"),
        ("hosts = 2\nracks = 'host1'", "racks"),
        ("hosts = 2\nracks = [['host1']]", "racks"),
        ("hosts = 2\nrate = '0Mbit/s'", "rate"),
        ("hosts = 2\nname = 'two.parts'", "name"),
    ],
)
def test_what_cannot_be_built_is_refused(described, text, path):
    with pytest.raises(DataError) as caught:
        described(text)
    assert [problem.split(": ")[0] for problem in caught.value.problems] == [path]


NUMBERS = ("7", "-1", "1.5", "nan", "inf", "9" * 4000, "0x" + "f" * 6000)
TABLES = ("{}", "{ a = { b = 1 } }")
LISTS = ("[]", "[[]]", "[" + "1, " * 300 + "]", "[" * 90 + "]" * 90)
TEXTS = (
    '""',
    '"²"',
    '"a:²"',
    r'"\u001b[2J"',
    r'"\u0000"',
    '"h[1-300000]"',
    '"a:99999999"',
    f'"{"a" * 70_000}"',
)
OTHERS = ("true", "1979-05-27", "07:32:00")
RATES = ("1e999Mbit/s", "1e-320GB/s", "-5Mbit/s", "nanbit/s", "1bit/s", "11Tbit/s", "1,2Mbit/s")
SETS = ('["a", "a"]', f'"{"a" * 64}"', '"a,b,-x"', '"h[1-99999999999]"')
WRONG = {
    "name": [*NUMBERS, *TABLES, *LISTS, *TEXTS, *OTHERS],
    "hosts": [*NUMBERS[1:], *TABLES, *LISTS, *TEXTS, *OTHERS, *SETS],
    "slots": [*NUMBERS[1:], *TABLES, *LISTS, *TEXTS, *OTHERS, "0", "65537", "40000"],
    "racks": [*NUMBERS, *TABLES, *LISTS[1:], *TEXTS, *OTHERS, '["host[1-2]", 7]'],
    "rate": [*NUMBERS, *TABLES, *LISTS, *TEXTS, *OTHERS, *(f'"{rate}"' for rate in RATES)],
    "trunk": [*NUMBERS, *TABLES, *LISTS, *TEXTS, *OTHERS, '"1Mbit/s"'],
    "rates": [*NUMBERS, *TABLES[1:], *LISTS, *TEXTS, *OTHERS, "{ host1 = 7 }", '{ "" = "1Mbit/s" }'],
    r'"\u001b[2J"': ["1"],
    "speed": ["1"],
}


@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key, values in WRONG.items() for value in values]
)
def test_a_wrong_value_is_refused_with_its_path(described, key, value):
    lines = {"hosts": "2", "slots": "1"} | {key: value}
    with pytest.raises(DataError) as caught:
        described("".join(f"{name} = {one}\n" for name, one in lines.items()))
    assert all(problem.startswith((key[:8], "hosts")) for problem in caught.value.problems)
    assert all(line.isprintable() and len(line) < 500 for line in caught.value.message.splitlines())


@pytest.mark.parametrize(
    "text",
    [
        "hosts = " + "9" * 5000,
        "hosts = 2\nname = " + "[" * 5000,
        "a" + ".a" * 30_000 + " = 1",
        "hosts = 2\n[rates]\na" + " . a" * 30_000 + " = '1Mbit/s'",
        "[a" + ".a" * 30_000 + "]",
        "hosts = 2\r",
        "hosts = \x00",
        "[hosts]\n[hosts]",
    ],
)
def test_what_no_parser_should_try_is_refused(described, text):
    with pytest.raises(DataError) as caught:
        described(text)
    assert len(caught.value.message) < 500


def test_a_comment_may_hold_many_dots(described):
    assert described("# " + "." * 200 + "\nhosts = 2").name == "small"


def test_the_largest_lab_with_every_pair_is_read(described):
    pairs = "\n".join(f"'h{src} -> h[1-{MOST_HOSTS}]' = '1Mbit/s'" for src in range(1, MOST_HOSTS + 1))
    lab = described(f"hosts = 'h[1-{MOST_HOSTS}]'\n[rates]\n{pairs}")
    assert len(lab.pairs) == MOST_HOSTS * (MOST_HOSTS - 1)


def test_rates_that_are_set_again_and_again_are_bounded(described):
    again = "\n".join(f"'h[1-250]->h[1-250]{' ' * n}' = '1Mbit/s'" for n in range(400))
    with pytest.raises(DataError, match="at most 250000 rates"):
        described(f"hosts = 'h[1-250]'\n[rates]\n{again}")


def test_what_is_no_toml_or_no_file_is_refused(described, tmp_path):
    with pytest.raises(DataError, match="expected TOML"):
        described("hosts = ")
    with pytest.raises(MissingInputError):
        read_lab(str(tmp_path / "absent.toml"))


def test_changes_are_taken_in_order(described):
    lab = described("hosts = 'a,b,c'\nrate = '9Mbit/s'")
    changed = reshaped(lab, ["a=4Mbit/s", "a.ingress = 5Mbit/s", "b->c=1Mbit/s", "b -> c = 2Mbit/s"])
    assert rates(changed) == {"ab": 4, "ac": 4, "ba": 5, "bc": 2, "ca": 5, "cb": 9}
    assert rates(reshaped(changed, ["a,b,c=unlimited", "b->c=unlimited"])) == dict.fromkeys(rates(lab))


def test_the_order_of_changes_to_pairs_does_not_matter(described):
    lab = described("hosts = 'a,b,c'")
    changes = ["a->b=1Mbit/s", "b->c=2Mbit/s", "a->c=3Mbit/s"]
    assert reshaped(lab, changes) == reshaped(lab, changes[::-1])


@pytest.mark.parametrize(
    "change",
    ["a", "a=fast", "d=1Mbit/s", "a->a=1Mbit/s", "trunk=1Mbit/s", "=1Mbit/s", "a.=1MB/s", "a:2=1MB/s"],
)
def test_a_change_that_cannot_be_is_named(described, change):
    with pytest.raises(UsageError) as caught:
        reshaped(described("hosts = 'a,b,c'"), [change])
    assert change.rpartition("=")[0] in caught.value.message


@pytest.mark.parametrize("text", ["100Mbit/s", "2.5Gbit/s", "400Gbit/s", "64kbit/s", "9bit/s", "1.6Tbit/s"])
def test_a_rate_is_written_as_it_is_read(text):
    assert format_rate(parse_rate(text)) == text


def test_one_nic_of_several_has_a_rate_of_its_own(described):
    lab = described("hosts = 'a,b'\nnics = 2\nrate = '8Mbit/s'\n[rates]\n\"b/eth1.egress\" = '2Mbit/s'")
    assert lab.devices() == ("eth0", "eth1")
    slow = lab.nic_rate("b", 1)
    assert (slow.egress_bytes_per_s, slow.ingress_bytes_per_s) == (2 * MBIT, 8 * MBIT)
    assert lab.nic_rate("b", 0).egress_bytes_per_s == lab.nic_rate("a", 1).egress_bytes_per_s == 8 * MBIT


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("nics = 0", "nics"),
        ("nics = 2\n[rates]\n\"a/eth2\" = '2Mbit/s'", "rates"),
        ("nics = 2\n[rates]\n\"a -> b\" = '2Mbit/s'", "rates"),
    ],
)
def test_nics_that_cannot_be_are_refused(described, text, path):
    with pytest.raises(DataError) as refused:
        described(f"hosts = 'a,b'\n{text}")
    assert path in str(refused.value.problems)


def faults(lab):
    names = ["egress_delay_s", "ingress_delay_s", "egress_loss", "ingress_loss", "mtu_bytes"]
    return {host.name: tuple(getattr(host, name) for name in names) for host in lab.hosts}


FAULTY = """
hosts = "a,b,c"
rate = "8Mbit/s"
[delays]
"a.egress" = "2ms"
b = "500us"
[losses]
a.ingress = "1.5%"
"b,c" = "3 %"
[mtu]
"b,c" = 576
"""


def test_delays_losses_and_mtus_of_hosts(described):
    assert faults(described(FAULTY)) == {
        "a": (2e-3, 0, 0, 0.015, 1500),
        "b": (5e-4, 5e-4, 0.03, 0.03, 576),
        "c": (0, 0, 0.03, 0.03, 576),
    }


def test_shape_knows_a_value_by_its_form(described):
    lab = reshaped(described(FAULTY), ["a = 0", "a.egress=4ms", "b = 0%", "c.mtu = 1500", "c = 4Mbit/s"])
    assert faults(lab) == {
        "a": (4e-3, 0, 0, 0.015, 1500),
        "b": (5e-4, 5e-4, 0, 0, 576),
        "c": (0, 0, 0.03, 0.03, 1500),
    }
    assert (rates(lab)["ab"], rates(lab)["ac"], rates(lab)["cb"]) == (8, 4, 4)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[delays]\na = '2Mbit/s'", 'delays."a": delay: expected a time with its unit'),
        ("[delays]\na = 2", 'delays."a": expected a value such as "2ms", found 2'),
        ("[delays]\na = '11s'", 'delays."a": delay: expected up to 10s'),
        ("[delays]\ntrunk = '1ms'", 'delays."trunk": lab small has no racks for a trunk to join'),
        ("racks = [['a/eth0'], ['b/eth1']]", "racks[1][0]: expected one of eth0"),
        ("nics = 2\nracks = [['a', 'b/eth0']]", "racks: expected b/eth1 in one rack, found it in 0"),
        ("[delays]\n'a -> b' = '1ms'", "expected hosts such as gpu1 or gpu1.egress"),
        ("[losses]\n'a/eth0' = '1%'", "expected hosts such as gpu1 or gpu1.egress"),
        ("[losses]\na = '1'", 'losses."a": loss: expected 0% to 100%'),
        ("[losses]\na = '101%'", 'losses."a": loss: expected 0% to 100%'),
        ("[losses]\nz = '1%'", 'losses."z": expected a host of lab small'),
        ("[mtu]\na = 9000", 'mtu."a": MTU: expected 576 to 1500 bytes'),
        ("[mtu]\na = '576'", 'mtu."a": expected a value such as 576'),
        ("[mtu]\n'a.egress' = 576", 'mtu."a.egress": expected a host of lab small'),
        ("delays = 3", "delays: expected a table of targets, found 3"),
    ],
)
def test_wrong_delays_losses_and_mtus(described, text, said):
    with pytest.raises(DataError) as refused:
        described(f"hosts = 'a,b'\n{text}\n")
    assert any(said in problem for problem in refused.value.problems)


def test_racks_of_interfaces_are_rails_and_trunks_have_delays(described):
    lab = described(
        "hosts = 'a,b'\nnics = 2\nracks = [['a/eth0', 'b/eth0'], ['a,b/eth1']]\n[delays]\ntrunk = '1ms'"
    )
    assert [lab.rack(host, nic) for host in "ab" for nic in (0, 1)] == [0, 1, 0, 1]
    assert lab.trunk_delay_s == 1e-3
    assert reshaped(lab, ["trunk=2ms"]).trunk_delay_s == 2e-3
