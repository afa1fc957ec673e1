from __future__ import annotations

import pytest

from ccctl.errors import DataError, MissingInputError
from synth.networks.link_list import read_link_list


def read(tmp_path, text):
    (tmp_path / "links.csv").write_text(text)
    return read_link_list(str(tmp_path / "links.csv"))


def test_plain_lines(tmp_path):
    network = read(tmp_path, "0,1,0.5us,50GB/s\n1,0,0.5us,25GB/s\n0,1,0.5us,50GB/s\n")
    assert network.ranks == 2
    assert network.src.tolist() == [0, 1, 0]
    assert network.alpha_s.tolist() == [5e-7] * 3
    assert 1 / network.beta_s_per_byte == pytest.approx([50e9, 25e9, 50e9])
    assert network.problems() == []


def test_comments_headers_units_and_ports(tmp_path):
    text = """# a box
    3
    Bandwidth (GB/s), Dest, Src, Latency (ns), nic, switch

    50, 1, 0, 500, nic0, s
    25, 0, 1, 250, nic1,
    """
    network = read(tmp_path, text)
    assert network.ranks == 3
    assert list(zip(network.src.tolist(), network.dst.tolist(), strict=True)) == [(0, 1), (1, 0)]
    assert network.alpha_s == pytest.approx([5e-7, 2.5e-7])
    assert 1 / network.beta_s_per_byte == pytest.approx([50e9, 25e9])
    assert [[network.ports[port] for port in network.ports_of(link)] for link in (0, 1)] == [
        ["nic0", "s"],
        ["nic1"],
    ]


def test_several_ports_in_one_column(tmp_path):
    rows = [f"{a},{b},1us,10GB/s,out{a}; in{b}" for a in range(3) for b in range(3) if a != b]
    several = read(tmp_path, "src,dst,alpha,bandwidth,port\n" + "\n".join(rows))
    assert sorted(several.ports) == ["in0", "in1", "in2", "out0", "out1", "out2"]
    columns = read(tmp_path, "\n".join(row.replace(";", ",") for row in rows))
    assert columns.ports == several.ports
    assert columns.link_port.tolist() == several.link_port.tolist()
    assert read(tmp_path, "0,1,0,1GB/s,;nic;\n").ports == ("nic",)


def test_named_ranks_have_hosts(tmp_path):
    network = read(tmp_path, "a:0,a:1,0,1GB/s\na:1,b:0,0,1GB/s\nb:0,a:0,0,1GB/s\n")
    assert network.hosts == ("a", "a", "b")
    assert network.dst.tolist() == [1, 2, 0]


def test_every_wrong_line_is_named(tmp_path):
    text = "src,dst,alpha,bandwidth\n0,1,0.5,50GB/s\n0,1,0us\n2,2,0,1GB/s\n0,x,0,1GB/s\n0,1,0,fast\n"
    with pytest.raises(DataError) as caught:
        read(tmp_path, text)
    problems = caught.value.problems
    assert [problem.partition(":")[0] for problem in problems] == [f"line {number}" for number in range(2, 7)]
    assert "alpha" in problems[0]
    assert "4 columns" in problems[1]
    assert "itself" in problems[2]
    assert "found 'x'" in problems[3]
    assert "bandwidth" in problems[4]


@pytest.mark.parametrize("text", ["", "# nothing\n", "src,dst,alpha,bandwidth\n", "99999999,0,0,1GB/s\n"])
def test_files_without_a_network(tmp_path, text):
    with pytest.raises(DataError):
        read(tmp_path, text)


def test_a_file_that_is_not_there():
    with pytest.raises(MissingInputError):
        read_link_list("nowhere.csv")


def test_synth_on_a_link_list(run_ccctl, tmp_path):
    rows = [f"{a},{b},1us,10GB/s" for a in range(4) for b in range(4) if abs(a - b) == 1]
    (tmp_path / "line.csv").write_text("\n".join(rows))
    done = run_ccctl("synth", "--network", "line.csv", "--collective", "all_gather", "--chunk", "64K")
    assert done.returncode == 0, done.stderr
    assert "line.csv: 4 ranks" in done.stdout
    (tmp_path / "line.csv").write_text("0,1\n")
    done = run_ccctl("synth", "--network", "line.csv", "--collective", "all_gather", "--chunk", "64K")
    assert done.returncode == 65
    assert "line.csv: line 1: expected 4 columns" in done.stderr
