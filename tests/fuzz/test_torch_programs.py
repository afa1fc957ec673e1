"""Random legal programs on the backend of torch.distributed: the same results as gloo, and no hang."""

import pytest
from torch_programs import campaign, program_of

SEED = 3


def test_a_program_is_the_same_on_every_rank_and_in_every_process():
    assert program_of(SEED, 5, 3) == program_of(SEED, 5, 3) != program_of(SEED, 6, 3)


def test_programs_use_all_that_makes_groups_wait_for_each_other():
    done = {step.do for number in range(60) for step in program_of(SEED, number, 3)}
    assert done == {"make", "call", "shuffle", "threads", "join", "destroy"}


@pytest.mark.parametrize("first", [0, 100])
def test_legal_programs_do_not_hang_and_give_what_gloo_gives(first):
    pytest.importorskip("torch")
    found = campaign(SEED, first, 6, ranks=3, deadline_s=240)
    assert (found.hung, found.failed) == ({}, {})
    assert found.programs == 6
