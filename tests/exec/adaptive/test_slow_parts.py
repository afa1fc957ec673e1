"""The slow host or link is named, however noisy the measurements are."""

import dataclasses

import numpy as np
import pytest

from exec.adaptive.slow_parts import SlowParts
from probes.base.columns import floats
from synth.network import Link, build

TIME_S = 1.7e9


def network(hosts, per_host=1, beta=1e-8):
    names = [f"h{at}" for at in range(hosts) for _ in range(per_host)]
    ranks = range(len(names))
    links = [
        Link(a, b, 1e-4, beta if names[a] != names[b] else beta / 100) for a in ranks for b in ranks if a != b
    ]
    return build("measured", names, links)


def measured(base, slow, chance, noise=0.02):
    """``base`` with the links slower that ``slow(source, destination)`` gives a factor for."""
    names = base.hosts
    factor = [slow(names[a], names[b]) for a, b in zip(base.src.tolist(), base.dst.tolist(), strict=True)]
    wander = np.exp(np.abs(chance.normal(0, noise, base.links)))
    return dataclasses.replace(base, beta_s_per_byte=floats(base.beta_s_per_byte * factor * wander))


def host(name, factor, *, sends=True, receives=True):
    return lambda src, dst: factor if (sends and src == name) or (receives and dst == name) else 1.0


def link(src, dst, factor):
    return lambda a, b: factor if (a, b) == (src, dst) else 1.0


def healthy(src, dst):
    return 1.0


def judge(parts, base, slow, chance, times=3):
    found = []
    for turn in range(times):
        found.append(parts.judge(measured(base, slow, chance), TIME_S + turn))
    return found


def test_random_faults_are_named_rightly_and_taken_back_and_nothing_else_is_named():
    chance = np.random.default_rng(5)
    for _ in range(30):
        base = network(int(chance.integers(3, 7)), per_host=int(chance.integers(1, 3)))
        names = sorted(set(base.hosts))
        src, dst = chance.choice(names, 2, replace=False)
        factor = float(np.exp(chance.uniform(np.log(1.3), np.log(10))))
        is_host = bool(chance.integers(2))
        slow = host(src, factor) if is_host else link(src, dst, factor)
        wanted = [(src,)] if is_host else [(src, dst)]
        parts = SlowParts(base)
        assert not any(one.slow or one.recovered for one in judge(parts, base, healthy, chance))
        found = judge(parts, base, slow, chance)
        assert [one.hosts for each in found for one in each.slow] == wanted
        assert found[0].doubtful and not found[-1].doubtful
        (named,) = parts.named
        assert named.factor == pytest.approx(factor, rel=0.15)
        assert named.way == ("both" if is_host else "sends")
        found = judge(parts, base, healthy, chance)
        assert [one.hosts for each in found for one in each.recovered] == wanted
        assert parts.named == ()


@pytest.mark.parametrize(("sends", "receives", "way"), [(True, False, "sends"), (False, True, "receives")])
def test_a_host_may_be_slow_one_way(sends, receives, way):
    base, chance = network(4), np.random.default_rng(1)
    parts = SlowParts(base)
    judge(parts, base, host("h2", 2.0, sends=sends, receives=receives), chance)
    assert [(one.hosts, one.way) for one in parts.named] == [(("h2",), way)]


def test_all_that_is_slow_at_once_is_named():
    base, chance = network(6), np.random.default_rng(1)
    parts = SlowParts(base)
    one, other = host("h1", 3.0), link("h4", "h5", 2.0)
    judge(parts, base, lambda a, b: one(a, b) * other(a, b), chance)
    assert {part.hosts for part in parts.named} == {("h1",), ("h4", "h5")}


def test_everything_slow_is_no_single_host():
    base, chance = network(4), np.random.default_rng(1)
    parts = SlowParts(base)
    judge(parts, base, lambda a, b: 2.0, chance)
    assert [part.hosts for part in parts.named] == [()]


def test_one_measurement_alone_names_nothing():
    base, chance = network(4), np.random.default_rng(1)
    parts = SlowParts(base)
    (first,) = judge(parts, base, link("h0", "h1", 3.0), chance, times=1)
    assert first.doubtful and not first.slow
    (second,) = judge(parts, base, healthy, chance, times=1)
    assert not second.doubtful and not second.slow and parts.named == ()


def test_links_that_never_look_the_same_twice_are_given_up():
    base, chance = network(6), np.random.default_rng(1)
    parts = SlowParts(base)
    found = []
    for turn in range(6):
        found += judge(parts, base, link(f"h{turn}", f"h{(turn + 1) % 6}", 3.0), chance, times=1)
    assert [one.doubtful for one in found] == [True, True, True, False, False, False]


def test_a_part_that_is_named_stays_so_until_it_is_half_way_back():
    base, chance = network(4), np.random.default_rng(1)
    parts = SlowParts(base)
    judge(parts, base, link("h0", "h1", 1.5), chance)
    assert not any(one.recovered for one in judge(parts, base, link("h0", "h1", 1.13), chance))
    assert [one.hosts for each in judge(parts, base, healthy, chance) for one in each.recovered]


def test_a_single_host_has_nothing_to_compare():
    base = network(1, per_host=3)
    assert SlowParts(base).judge(base, TIME_S).slow == ()
