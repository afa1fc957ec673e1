"""Groups of a job: planned for its hosts, refused where ranks never agree, back when what was slow is not."""

from dataclasses import replace

import pytest
from racked_networks import SIZE_BYTES, racked

from exec.training.ds_sync.planning import TrainingJob, adjusted, equal_links, planned_for, require_agreement
from probes.base.errors import DataError, UsageError
from synth.errors import NotApplicableError
from synth.groups.planner import plan_groups


@pytest.mark.parametrize("hosts, largest", [("aaaa", 2), ("abcd", 2), ("abcdef", 3), ("abcde", 5), ("ab", 2)])
def test_one_rack_averages_in_small_groups(hosts, largest):
    job = TrainingJob(tuple(hosts), 10_000, 4)
    groups = planned_for(equal_links(job), job)
    assert groups.rho == 0
    assert max(len(group) for division in groups.iterations for group in division) == largest
    require_agreement(groups, job.ranks)


def test_racks_of_a_network_get_the_papers_pattern():
    network = racked([4, 4])
    assert planned_for(network, TrainingJob(network.hosts, SIZE_BYTES, 1)).pattern == "representatives"


def test_groups_that_never_agree_or_fit_another_job_are_refused():
    groups = plan_groups(racked([2, 2]), SIZE_BYTES, pattern="butterfly").groups
    require_agreement(groups, 4)
    with pytest.raises(NotApplicableError, match="rho = 1"):
        require_agreement(replace(groups, iterations=groups.iterations[:1]), 4)
    with pytest.raises(UsageError, match="8 ranks of the job, found 4"):
        require_agreement(groups, 8)
    with pytest.raises(DataError, match="rank 3 is in none"):
        require_agreement(replace(groups, iterations=(((0, 1), (2,)),)), 4)


def test_the_first_groups_come_back_when_nothing_is_slow_any_more():
    network = racked([4])
    first = planned_for(network, TrainingJob(network.hosts, SIZE_BYTES, 1))
    slow = adjusted(first, first, racked([4], slow_ranks=[2]))
    assert slow.changed and slow.groups.slow_ranks == (2,)
    assert not adjusted(first, slow.groups, racked([4], slow_ranks=[2])).changed
    healed = adjusted(first, slow.groups, network)
    assert healed.changed and healed.groups.iterations == first.iterations
