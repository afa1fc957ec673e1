import pytest

from ccctl.acceptance.run import _links_note


@pytest.mark.parametrize(
    ("budget_s", "said"),
    [
        (None, ": 5 s, longer for slow links or shared cores"),
        (
            60.0,
            ": 5 s, longer for slow links or shared cores, up to 60 s",
        ),
        (1.0, " that fit into 1 s"),
    ],
)
def test_the_time_for_the_links_is_no_more_than_the_budget(budget_s, said):
    assert _links_note(4, 5.0, budget_s) == f"links: measuring the links between 4 ranks{said}"
