"""The picture of a watch: the link that got worse comes first, events stand where they happened."""

from dataclasses import replace

import numpy as np
from slow_host import profile_with_slow_host

from ccctl.render.svg.history import pictures
from probes.base.columns import floats
from probes.profiling.history import begun, with_run


def test_the_link_that_got_worse_is_the_first_line_and_events_are_told(samples):
    (drawing,) = pictures(samples["history"], 960)
    legend = [part for part in drawing.parts if "legend" in part]
    assert "1 → rank 0" in legend[0] or "1 → 0" in legend[0]
    assert "drift: 1 → 0: bandwidth 1 → 0.5 GB/s" in legend[-1]
    # Each panel has a line for the event.
    assert sum("stroke-dasharray" in part for part in drawing.parts) == 2


def test_links_that_were_worse_and_have_recovered_are_drawn_before_those_that_never_were():
    profile = profile_with_slow_host(hosts=4, ranks_a_host=1)
    history, steady = begun(profile), profile.links.beta_s_per_byte * 0 + 1e-9
    times = np.where(profile.links.dst == 1, 2.0, 1.0)
    for number in range(6):
        beta = floats(steady * times if number in (1, 2, 3, 4) else steady)
        now = replace(profile, links=replace(profile.links, beta_s_per_byte=beta))
        history = with_run(history, profile, now, 1e9 + number)
    (drawing,) = pictures(history, 960)
    legend = "".join(part for part in drawing.parts if "legend" in part)
    assert all(f"{name} → node2" in legend for name in ("node1", "node3", "node4"))


def test_runs_without_a_value_leave_no_point(samples):
    history = samples["history"]
    lost = replace(history, beta_s_per_byte=floats([1e-9, 1e-9, 0.0, 2e-9]))
    marks = "".join(next(pictures(lost, 960)).parts).count("class='mark'")
    # 3 of 4 bandwidths, 4 latencies, and two lines in the legend.
    assert marks == 3 + 4 + 2


def test_without_a_run_there_is_no_picture(samples):
    empty = replace(
        samples["history"], at_s=floats([]), beta_s_per_byte=floats([]), alpha_s=floats([]), events=()
    )
    assert not [*pictures(empty, 960)]
