import itertools
import subprocess
import sys

import numpy as np
import pytest
from limits import HANG_S

from exec.launcher.run import launch
from probes.base.errors import UsageError
from probes.profiling.task import Begun, Effort, rescued
from probes.sampling.packet_trains import Trains
from probes.sampling.samples import Place, Samples

TASK = "probes.profiling.task:profile"


def measured(ranks, *, quick, task=TASK):
    return launch(task, Effort(quick=quick), ranks=ranks, timeout_s=HANG_S)


def judge(profile):
    """Assert what holds for the links of any profile of ranks of one host."""
    assert profile.problems() == []
    links = profile.links
    assert (links.alpha_s > 0).all()
    assert (links.alpha_median_s >= links.alpha_s).all()
    assert (links.beta_low_s_per_byte <= links.beta_s_per_byte).all()
    assert (links.beta_s_per_byte <= links.beta_high_s_per_byte).all()
    assert (links.samples > 0).all()
    # No two processes exchange less than 100 KB or more than 10 TB a second through memory.
    assert ((links.beta_s_per_byte > 1e-13) & (links.beta_s_per_byte < 1e-5)).all()


# Tests of `ccctl profile` measure all links in all passes, and the next test measures briefly.
@pytest.mark.long
@pytest.mark.mpi
@pytest.mark.parametrize(("ranks", "quick"), [(2, True), (3, False)])
def test_every_link_is_measured_and_costs_something(ranks, quick):
    profile = measured(ranks, quick=quick)
    judge(profile)
    links = profile.links
    assert list(zip(links.src, links.dst, strict=True)) == list(itertools.permutations(range(ranks), 2))


@pytest.mark.mpi
def test_a_quick_profile_of_many_ranks_leaves_links_out_but_reaches_every_rank():
    profile = measured(6, quick=True, task="briefly_profiled:profiled")
    judge(profile)
    (memory,) = profile.memory
    assert len(memory.sizes_bytes) == 2
    strides = {int(stride) for stride in (profile.links.dst - profile.links.src) % 6}
    assert strides == {1, 2, 4, 5}
    assert np.bincount(profile.links.dst, minlength=6).tolist() == [4] * 6
    assert "left out (strides 1, 2, 4, … only): 6 links not measured" in profile.findings


@pytest.mark.mpi
def test_one_rank_has_no_links():
    with pytest.raises(UsageError, match="at least 2 ranks"):
        measured(1, quick=True)


def test_what_ranks_gave_away_makes_a_profile_of_the_links_that_were_whole():
    sizes = [128 << 10 << step for step in range(3)]
    trains = Trains({size: [1e-6 + 1e-9 * size] * 3 for size in sizes})
    pieces = [
        Samples(round_trips_s={(0, 1): [2e-6], (1, 2): [2e-6]}),
        Begun((Place("a", 8), Place("b", 8), Place("c", 8)), "Some MPI", 6),
        Samples(trains={(0, 1): trains, (0, 2): trains}),
        Samples(trains={(1, 0): trains}),
    ]
    profile = rescued(pieces, "rank 2 (host c) does not answer")
    assert profile.problems() == []
    assert list(zip(profile.links.src, profile.links.dst, strict=True)) == [(0, 1), (1, 0)]
    assert profile.findings[0] == ("interrupted: rank 2 (host c) does not answer; 4 of 6 links not measured")
    assert rescued(pieces[:2], "early") is None
    assert rescued(pieces[2:], "no word of rank 0") is None


def test_a_quick_look_keeps_the_strides_that_connect_everybody():
    places = [Place(f"h{rank}", 8) for rank in range(8)]
    quick, full = (Effort(quick=quick).plan(places) for quick in (True, False))
    assert [(pairs[0][1] - pairs[0][0]) % 8 for pairs in quick.rounds] == [1, 2, 4, 6, 7]
    assert len(full.rounds) == 7
    assert full.passes > quick.passes


def test_ranks_of_a_profile_load_no_scipy():
    script = "import sys, probes.profiling.task; print('scipy' in sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
