"""One run of a watch on measurements that are given: what is told, decided and kept, whatever ends it."""

import itertools
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from few_methods import search_briefly
from given_profile import profile_of_links

from ccctl.artifacts import codec
from ccctl.errors import TimeoutExpired
from ccctl.launching import Deadline
from ccctl.render import prometheus
from ccctl.render.text.watch import say_found
from ccctl.watch import once, state
from ccctl.watch.once import WatchRequest, measure_and_judge, replan
from ccctl.watch.state import opened, read_schedule
from probes.link_costs import SentSegments, SharedPort
from probes.profiling.drift import compare
from synth import synthesize
from synth.check.schedule import check
from synth.networks.measured import from_profile

ROOT = Path(__file__).resolve().parents[3]
HOSTS = ("gpu1", "gpu2", "gpu3", "gpu4")
PAIRS = list(itertools.permutations(range(4), 2))


def profile(share=None, *, seed=0, pairs=PAIRS, late=None, preempted=(), segments=()):
    """Links of 100 MB/s between hosts of a NIC each, those in ``share`` of less, others ``late``."""
    rng = np.random.default_rng(seed)
    beta = np.array([1e-8 / (share or {}).get(pair, 1.0) for pair in pairs])
    beta *= np.exp(rng.uniform(-0.02, 0.02, len(pairs)))
    alpha = np.array([(late or {}).get(pair, 20e-6) for pair in pairs])
    flags = ["preempted" if pair in preempted else "" for pair in pairs]
    ports = tuple(
        SharedPort(f"{host} {way}", tuple(row for row, pair in enumerate(pairs) if pair[end] == rank), "nic")
        for rank, host in enumerate(HOSTS)
        for end, way in ((0, "egress"), (1, "ingress"))
    )
    spread = {"alphas": (1, 1.05, 1.1), "betas": (1, 1.02, 1.05, 0.99, 1.01), "samples": 30, "flags": flags}
    return profile_of_links(HOSTS, pairs, alpha, beta, **spread, ports=ports, rounds=3, segments=segments)


@pytest.fixture(autouse=True)
def few_methods(monkeypatch):
    search_briefly(monkeypatch)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a baseline and a ring for it."""
    folder = tmp_path_factory.mktemp("given")
    codec.write(str(folder / "profile.json"), "profile", profile())
    ring = synthesize(from_profile(profile()), "all_reduce", 1 << 20, method="ring").schedule
    codec.write(str(folder / "schedule.json"), "schedule", ring)
    return folder


@pytest.fixture
def watch_request(made):
    baseline = codec.read(str(made / "profile.json"), "profile")
    return WatchRequest(baseline, read_schedule(str(made / "schedule.json")), None, 1.05, 3.0)


class Watch:
    """Runs one after the other on one folder, a minute between them."""

    def __init__(self, request, folder):
        self.request, self.folder, self.runs = request, folder, 0
        ring = request.schedule_file.schedule
        ends = (ring.network.src[ring.link], ring.network.dst[ring.link])
        self.used = list(dict.fromkeys(zip(*(column.tolist() for column in ends), strict=True)))
        self.pair = self.used[0]
        self.slow = {self.pair: 0.5}
        self.name = " → ".join(HOSTS[rank] for rank in self.pair)

    def run(self, share=None, *, deadline=None, again=None, **how):
        """(what was found, what was decided) where links are as ``share`` says, and ``again`` once more."""
        self.runs += 1
        self.measured = []

        def measure(look):
            pairs = list(zip(look.turns.src.tolist(), look.turns.dst.tolist(), strict=True))
            self.measured.append(tuple(pairs) if look.again else None)
            now = again if look.again and again is not None else share
            return profile(now, seed=10 * self.runs + len(self.measured), pairs=pairs, **how)

        at_s = 1e9 + 60.0 * self.runs
        with opened(str(self.folder)) as folder:
            found = measure_and_judge(self.request, folder, measure, at_s)
            return found, replan(self.request, folder, found, deadline or Deadline(None), at_s)

    def files(self):
        return {path.name: path.read_bytes() for path in self.folder.iterdir()}


@pytest.fixture
def watch(watch_request, tmp_path):
    return Watch(watch_request, tmp_path / "state")


def test_a_quiet_run_changes_the_history_alone(watch):
    watch.run()
    before = watch.files()
    found, outcome = watch.run()
    after = watch.files()
    assert (found.standing, found.events, outcome.plan) == ((), (), None)
    assert {name for name in after if after[name] != before.get(name)} == {"history.json"}
    assert watch.measured == [None]
    assert found.now_s == watch.request.baseline_s


def test_a_halved_link_is_measured_again_named_costed_and_planned_around(watch):
    watch.run()
    before = watch.files()
    found, outcome = watch.run(watch.slow)
    assert watch.measured == [None, (watch.pair,)]
    (one,) = found.standing
    assert one.change.what == watch.name
    # A ring goes through every link that it has.
    assert found.cost_of(one) == pytest.approx(2.0, rel=0.1)
    assert found.now_s == pytest.approx(found.cost_of(one) * watch.request.baseline_s)
    assert outcome.plan.gain > 1.05
    current = read_schedule(str(watch.folder / "current.json"))
    assert check(current.schedule) == []
    assert outcome.adopted.read_bytes() == current.content
    assert before["current.json"] == watch.request.schedule_file.content != current.content
    events = json.loads(watch.files()["history.json"])["body"]["events"]
    assert [event["kind"] for event in events] == ["drift", "schedule"]
    assert outcome.adopted.name in events[1]["text"]


def test_what_drifts_on_is_neither_told_as_new_nor_searched_again(watch):
    for share in (None, watch.slow):
        watch.run(share)
    before = watch.files()
    found, outcome = watch.run(watch.slow)
    assert [one.new for one in found.standing] == [False]
    assert (found.events, outcome.plan.searched, outcome.adopted) == ((), False, None)
    assert {name for name, content in watch.files().items() if content != before.get(name)} == {
        "history.json"
    }


def test_when_it_has_recovered_the_given_schedule_is_taken_again_if_that_pays(watch):
    for share in (None, watch.slow):
        watch.run(share)
    found, outcome = watch.run()
    assert [one.what for one in found.verdict.recovered] == [watch.name]
    assert not found.drifted
    gain = outcome.plan.before_s / watch.request.baseline_s
    assert outcome.returned == (gain >= 1.05)
    assert (watch.files()["current.json"] == watch.request.schedule_file.content) == outcome.returned
    assert not outcome.plan.searched


def test_a_disturbance_that_is_gone_when_it_is_measured_again_is_nothing(watch):
    found, _ = watch.run(watch.slow, again={})
    assert (found.standing, found.events) == ((), ())
    assert watch.files()["current.json"] == watch.request.schedule_file.content


@pytest.mark.parametrize(("late_s", "times", "told"), [(300e-6, 1.03, 0), (2e-3, 1.24, 1)])
def test_a_latency_counts_only_where_it_costs_the_schedule_as_much_as_lost_bandwidth(
    watch, late_s, times, told
):
    found, outcome = watch.run(late={watch.pair: late_s})
    assert [one.change.quantity for one in found.standing] == ["latency"] * told
    assert watch.measured == [None, (watch.pair,)]
    change = compare(profile(), found.now).changes[0]
    assert once._cost(watch.request, found.now, change) == pytest.approx(times, abs=0.01)
    assert (outcome.plan is not None) == told


def test_a_latency_of_ranks_that_wait_for_cores_is_a_note_and_no_drift(watch):
    found, outcome = watch.run(late={watch.pair: 2e-3}, preempted={watch.pair})
    assert (found.drifted, found.events, outcome.plan) == (False, (), None)
    (change,) = found.verdict.drift.doubtful
    assert (change.what, change.quantity) == (watch.name, "latency")
    assert watch.measured == [None, (watch.pair,)]
    # Nor does it enter into what the link is known to vary by.
    assert json.loads(watch.files()["history.json"])["body"]["alpha_s"][PAIRS.index(watch.pair)] == 0


def test_a_latency_that_costs_the_schedule_little_is_a_note_where_it_doubled(watch, capsys):
    for late_s, told in ((30e-6, ""), (300e-6, f"{watch.name}: latency 2")):
        found, outcome = watch.run(late={watch.pair: late_s})
        assert found.standing == () and outcome.history.events == ()
        say_found(watch.request, found)
        said = capsys.readouterr()
        assert "no drift: 12 links" in said.out
        assert (told in said.err) if told else not said.err


def test_a_latency_that_costs_little_is_measured_again_before_it_is_noted(watch):
    for preempted in (), {watch.pair}:
        watch.run(late={watch.pair: 300e-6}, preempted=preempted)
        assert watch.measured == [None, (watch.pair,)]


def test_a_slow_link_that_the_schedule_does_not_use_costs_it_nothing(watch, capsys):
    unused = next(pair for pair in PAIRS if pair not in watch.used)
    found, _ = watch.run({unused: 0.5})
    say_found(watch.request, found)
    said = capsys.readouterr().out
    assert "all_reduce takes no longer than before" in said and "(no longer than before)" in said


def test_a_drift_while_ranks_waited_for_cores_is_told_with_that(watch, capsys):
    for preempted, told in ((), False), ({watch.pair}, True):
        found, _ = watch.run(watch.slow, preempted=preempted)
        assert found.standing
        say_found(watch.request, found)
        assert ("ranks waited for cores in this run" in capsys.readouterr().err) == told


def test_a_host_whose_packets_get_lost_is_a_note_and_no_drift(watch, capsys):
    sent = (SentSegments("gpu1", 5000, 1), SentSegments("gpu3", 5000, 60))
    found, outcome = watch.run(segments=sent)
    assert found.standing == () and outcome.history.events == ()
    say_found(watch.request, found)
    assert "host gpu3 retransmitted 1.2% of its TCP segments" in capsys.readouterr().err


def test_what_alerts_and_the_dashboard_ask_for_is_written(watch, tmp_path):
    found, outcome = watch.run(watch.slow, segments=(SentSegments("gpu1", 5000, 1),))
    with prometheus.exposed(str(tmp_path / "watch.prom"), "watch") as exposition:
        prometheus.add_watch(exposition, found, outcome, watch.request.baseline_s)
        # Add the hosts of networks with very many links.
        prometheus.add_hosts(exposition, found.now)
    text = (tmp_path / "watch.prom").read_text()
    written = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    for name in ("prometheus/ccctl-alerts.yml", "grafana/ccctl-dashboard.json"):
        example = re.sub("#.*", "", (ROOT / "examples" / name).read_text())
        assert set(re.findall(r"\bccctl_[a-z_]+\b", example)) <= written


def test_a_halved_link_is_found_whatever_its_ranks_wait_for(watch):
    found, _ = watch.run(watch.slow, preempted={watch.pair})
    assert [(one.change.what, one.change.quantity) for one in found.standing] == [(watch.name, "bandwidth")]


def test_a_gain_that_is_too_small_leaves_the_schedule(watch, watch_request):
    watch.request = replace(watch_request, least_gain=3.0)
    _, outcome = watch.run(watch.slow)
    assert outcome.adopted is None
    assert watch.files()["current.json"] == watch_request.schedule_file.content


def test_no_time_left_ends_it_with_what_was_measured_kept(watch):
    watch.run()
    with pytest.raises(TimeoutExpired):
        watch.run(watch.slow, deadline=Deadline(1e-9))
    kept = json.loads(watch.files()["history.json"])["body"]
    assert len(kept["at_s"]) == 2
    assert [event["kind"] for event in kept["events"]] == ["drift"]
    _, outcome = watch.run(watch.slow)
    assert outcome.adopted is not None


WRITES = 5


@pytest.mark.parametrize("last", range(WRITES))
def test_whatever_write_it_is_ended_at_the_next_run_gets_there(watch, monkeypatch, last):
    watch.run()
    writes = itertools.count()

    def ended(write):
        def wrapped(*arguments, **how):
            if next(writes) == last:
                raise KeyboardInterrupt
            return write(*arguments, **how)

        return wrapped

    with monkeypatch.context() as inside:
        inside.setattr(state, "write_atomically", ended(state.write_atomically))
        inside.setattr(state.codec, "write", ended(codec.write))
        try:
            watch.run(watch.slow)
            assert last >= 4
        except KeyboardInterrupt:
            assert last < 4
    for name in watch.files():
        codec.read(str(watch.folder / name), "history" if name == "history.json" else "schedule")
    found, _ = watch.run(watch.slow)
    assert [one.change.what for one in found.standing] == [watch.name]
    current = read_schedule(str(watch.folder / "current.json"))
    assert current.content != watch.request.schedule_file.content
    assert "lock" not in watch.files()


def test_of_many_changes_the_most_expensive_comes_first(watch, monkeypatch):
    """A ring on four ranks uses four of the twelve links: the others may slow down for nothing."""
    unused = next(pair for pair in PAIRS if pair not in watch.used)
    found, _ = watch.run({unused: 0.3, watch.pair: 0.6})
    assert [found.cost_of(one) > 1.2 for one in found.standing] == [True, False]
    monkeypatch.setattr(once, "_MOST_COSTS", 1)
    found, _ = watch.run({unused: 0.3, watch.pair: 0.6})
    assert [found.cost_of(one) is None for one in found.standing] == [False, True]
