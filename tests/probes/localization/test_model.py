import pytest

from probes.localization.model import FabricPlan, Fault, joined


@pytest.mark.parametrize(
    ("one", "other", "kind", "parts"),
    [
        (("egress", ("a",)), ("ingress", ("a",)), "host", ("a",)),
        (("egress", ("a",)), ("egress", ("a",)), "egress", ("a",)),
        (("host", ("a",)), ("egress", ("a",)), "host", ("a",)),
        (("one_way_pair", ("b", "a")), ("one_way_pair", ("a", "b")), "pair", ("a", "b")),
        (("one_way_pair", ("b", "a")), ("one_way_pair", ("b", "a")), "one_way_pair", ("b", "a")),
        (("pair", ("a", "b")), ("one_way_pair", ("b", "a")), "pair", ("a", "b")),
        (("loss", ("a",)), ("loss", ("a",)), "loss", ("a",)),
    ],
)
def test_two_faults_of_one_part_are_one(one, other, kind, parts):
    found = joined(Fault(*one, 0.5, 1e-6, (1, 2), ("x",)), Fault(*other, 0.4, 2e-6, (2, 3), ("x", "y")))
    assert (found.kind, found.parts, found.level, found.extra_s) == (kind, parts, 0.4, 2e-6)
    assert (found.rows, found.evidence) == ((1, 2, 3), ("x", "y"))


def test_a_plan_knows_the_rack_of_a_host():
    plan = FabricPlan({"A": ("a", "b")})
    assert (plan.rack_of("b"), plan.rack_of("x")) == ("A", "")
