"""Schedules that are known need no search, where links cost what they did."""

import subprocess
import sys
from dataclasses import replace

import pytest
from limits import HANG_S
from threaded_ranks import ThreadedRanks

from exec.adaptive.messages import CollectiveCall
from exec.adaptive.replanner import good_schedules
from exec.training.backend import planned_collectives
from exec.training.backend.known_schedules import KnownSchedules, place_of
from exec.training.backend.planned_collectives import PlannedCollectives
from probes.base.columns import floats
from synth import synthesize
from synth.network import Link, build

SIZE = 1 << 20
KEY = {"kind": "all_reduce", "hosts": ["a", "b", "c"]}


class Folder:
    """A store that counts."""

    def __init__(self):
        self.schedules, self.asked = {}, 0

    def read(self, key):
        self.asked += 1
        return self.schedules.get(repr(key))

    def keep(self, key, schedule):
        self.schedules[repr(key)] = schedule


def network(slow=1.0, ranks=3):
    """Every rank linked to every other; the first link is so many times slower than the others."""
    pairs = [(src, dst) for src in range(ranks) for dst in range(ranks) if src != dst]
    links = [Link(src, dst, 1e-5, (slow if (src, dst) == (0, 1) else 1.0) * 1e-9) for src, dst in pairs]
    return build("session", [f"h{rank}" for rank in range(ranks)], links)


def ring(on):
    return synthesize(on, "all_reduce", SIZE, method="ring").schedule


@pytest.mark.parametrize(("slow", "known"), [(1.0, True), (1.3, True), (4.0, False), (0.25, False)])
def test_a_schedule_is_taken_where_links_cost_about_what_they_did(slow, known):
    store = Folder()
    schedules = KnownSchedules(store)
    schedules.keep(KEY, made := ring(network()))
    assert (schedules.find(KEY, network(slow), SIZE) is made) == known
    assert (KnownSchedules(store).find(KEY, network(slow), SIZE) is made) == known


def test_another_key_other_ranks_and_other_links_have_none():
    schedules = KnownSchedules()
    schedules.keep(KEY, ring(network()))
    assert schedules.find({**KEY, "root": 1}, network(), SIZE) is None
    assert schedules.find(KEY, network(ranks=4), SIZE) is None
    one_way = build("ring", ["h0", "h1", "h2"], [Link(at, (at + 1) % 3, 1e-5, 1e-9) for at in range(3)])
    assert schedules.find(KEY, one_way, SIZE) is None


def test_what_a_store_holds_is_proven_before_it_is_taken():
    store, made = Folder(), ring(network())
    store.keep(KEY, replace(made, chunk=made.chunk[:-1], link=made.link[:-1], op=made.op[:-1]))
    assert KnownSchedules(store).find(KEY, network(), SIZE) is None


def test_the_store_is_asked_once():
    store = Folder()
    store.keep(KEY, ring(network()))
    schedules = KnownSchedules(store)
    for _ in range(3):
        assert schedules.find(KEY, network(), SIZE) is not None
    assert store.asked == 1


def test_groups_of_one_job_and_of_the_next_search_once_for_each_class_of_sizes(monkeypatch):
    searched = []

    def counted(network, request):
        searched.append(request)
        return good_schedules(network, [request], range(network.ranks), 0.2)[request]

    # Measurements on a machine that runs other tests differ too much.
    monkeypatch.setattr(planned_collectives, "measured_network", lambda group: network())
    store = Folder()
    ranks = ThreadedRanks([0, 0, 0], monkeypatch)
    requests = [
        CollectiveCall("all_reduce", "sum", "float32", count, 4) for count in (20_000, 25_000, 100_000)
    ]
    for _job in range(2):
        known = KnownSchedules(store)
        for _group in range(2):

            def work(rank, known=known):
                plans = PlannedCollectives(ranks.groups[rank], None, counted, known)
                for request in requests:
                    plans.keep(request, plans.make(request, plans.group))
                plans.close()

            ranks.on_all(work)
    ranks.close()
    assert [request.count for request in searched] == [20_000, 100_000]
    assert len(store.schedules) == 2


def test_a_given_network_is_known_by_what_it_costs_and_not_by_where_ranks_are():
    one, other = network(), network(slow=1.01)
    assert place_of(None, one) == place_of(None, network()) != place_of(None, other)
    dearer = replace(one, alpha_s=floats(one.alpha_s * 1.01))
    assert place_of(None, dearer) != place_of(None, one)


def test_a_group_is_made_without_what_only_plans_need():
    # Importing loops and solvers takes seconds on a busy machine, before the first iteration.
    modules = ("planned_collectives", "preparation", "call_log")
    asked = "; ".join(f"import exec.training.backend.{one}" for one in modules)
    code = f"import sys; {asked}; print({{'numba', 'scipy'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=HANG_S)
    assert done.stdout == "set()\n", done.stderr
