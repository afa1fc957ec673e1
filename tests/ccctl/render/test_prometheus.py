import itertools
import re
from dataclasses import replace

import pytest
from given_profile import profile_of_links

from ccctl.errors import CannotWriteError, FoundProblem, LostRankError
from ccctl.render.prometheus import Exposition, add_hosts, add_profile, exposed
from probes.link_costs import SentSegments

SAMPLE = re.compile(r'[a-z_]+(\{[a-z_]+="([^"\\]|\\.)*"(,[a-z_]+="([^"\\]|\\.)*")*\})? [0-9.e+-]+')


def sample(path, name):
    return next(line.split()[-1] for line in path.read_text().splitlines() if line.startswith(name))


def test_each_name_is_explained_once_and_every_line_is_a_sample(samples):
    exposition = Exposition()
    add_profile(exposition, samples["profile"])
    lines = exposition.render().splitlines()
    names = [line.split()[2] for line in lines if line.startswith("# HELP")]
    assert len(names) == len(set(names))
    assert names == [line.split()[2] for line in lines if line.startswith("# TYPE")]
    values = [line for line in lines if not line.startswith("#")]
    assert all(SAMPLE.fullmatch(line) for line in values)
    assert 'ccctl_link_bandwidth_bytes_per_second{src="host:0",dst="host:1",kind="host"} 1000000.0' in values
    assert 'ccctl_link_latency_seconds{src="host:1",dst="host:0",kind="host"} 2e-06' in values


def test_hosts_are_told_by_the_middle_of_their_links():
    hosts = ("a", "a", "b", "c")
    pairs = list(itertools.permutations(range(4), 2))
    # Links that leave a carry 4 GB/s, other links between hosts 1; links within a host do not count.
    beta = [0.25e-9 if hosts[src] == "a" else 1e-9 for src, _ in pairs]
    exposition = Exposition()
    add_hosts(exposition, profile_of_links(hosts, pairs, 1e-9, beta))
    values = dict(line.rsplit(" ", 1) for line in exposition.render().splitlines() if line[0] != "#")
    told = {
        (way, host): float(values[f'ccctl_host_{way}_bytes_per_second{{host="{host}"}}'])
        for way in ("egress", "ingress")
        for host in "abc"
    }
    fast = {("egress", "a"), ("ingress", "b"), ("ingress", "c")}
    assert told == {key: pytest.approx(4e9 if key in fast else 1e9) for key in told}


def test_what_hosts_send_again_is_a_share(samples):
    exposition = Exposition()
    add_profile(exposition, replace(samples["profile"], segments=(SentSegments("host", 200, 3),)))
    assert 'ccctl_host_retransmitted_ratio{host="host"} 0.015' in exposition.render().splitlines()


def test_labels_are_escaped():
    exposition = Exposition()
    exposition.add("x", "y", 1, host='a"b\\c\nd')
    assert exposition.render().splitlines()[-1] == 'x{host="a\\"b\\\\c\\\\nd"} 1'


def test_a_success_is_readable_by_all_and_dated(tmp_path):
    path = tmp_path / "a.prom"
    with exposed(str(path), "profile") as exposition:
        exposition.add("ccctl_profile_ranks", "Ranks.", 4)
    assert path.stat().st_mode & 0o777 == 0o644
    assert sample(path, "ccctl_exit_code{") == "0"
    assert float(sample(path, "ccctl_last_success_timestamp_seconds{")) > 1e9
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.prom"]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (LostRankError("gone"), "1"),
        (ValueError("bug"), "70"),
        (KeyboardInterrupt(), "130"),
        (SystemExit(143), "143"),
    ],
)
def test_a_failure_keeps_the_time_of_the_last_success(tmp_path, error, status):
    path = tmp_path / "a.prom"
    for _ in range(2):
        with pytest.raises(type(error)), exposed(str(path), "profile"):
            raise error
        assert sample(path, "ccctl_exit_code{") == status
        assert "ccctl_last_success" not in path.read_text()
    with exposed(str(path), "profile"):
        pass
    succeeded = sample(path, "ccctl_last_success_timestamp_seconds{")
    for _ in range(2):
        with pytest.raises(type(error)), exposed(str(path), "profile"):
            raise error
        assert sample(path, "ccctl_last_success_timestamp_seconds{") == succeeded


def test_a_finding_is_a_success_with_status_1(tmp_path):
    path = tmp_path / "a.prom"
    with pytest.raises(FoundProblem), exposed(str(path), "profile"):
        raise FoundProblem("slower")
    assert sample(path, "ccctl_exit_code{") == "1"
    assert float(sample(path, "ccctl_last_success_timestamp_seconds{")) > 1e9


def test_a_rank_that_leaves_well_writes_nothing(tmp_path):
    with pytest.raises(SystemExit), exposed(str(tmp_path / "a.prom"), "profile"):
        raise SystemExit(0)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_does_not_hide_why_the_command_failed(tmp_path):
    path = str(tmp_path / "no" / "a.prom")
    with pytest.raises(LostRankError), exposed(path, "profile"):
        raise LostRankError("gone")
    with pytest.raises(CannotWriteError), exposed(path, "profile"):
        pass
