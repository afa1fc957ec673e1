"""The errors say what, where and what to do, and the tree drawn in the module is the real one."""

import re

import ccctl.errors
import probes.base.errors
from ccctl.errors import CcctlError, DataError


def test_an_error_carries_message_and_hint():
    error = CcctlError("expected 2, found 3", hint="count again")
    assert (str(error), error.message, error.hint) == (
        "expected 2, found 3",
        "expected 2, found 3",
        "count again",
    )


def test_the_argument_of_a_library_is_told_as_the_option_that_it_comes_from():
    error = CcctlError(" gurobi: unknown solver", argument="solver")
    assert error.message == "solver gurobi: unknown solver"
    assert ccctl.errors.message_of(error) == "--solver gurobi: unknown solver"
    assert (
        ccctl.errors.message_of(CcctlError(": expected 1", argument="hold_alpha"))
        == "--hold-alpha: expected 1"
    )
    assert ccctl.errors.message_of(CcctlError("the solver is gone")) == "the solver is gone"


def test_a_data_error_names_its_source_in_every_line():
    error = DataError("a.json", ["body.x: missing", "body.y: missing"])
    assert error.problems == ("body.x: missing", "body.y: missing")
    assert error.message == "a.json: body.x: missing\na.json: body.y: missing"


def test_the_drawn_tree_holds_every_error_and_its_status():
    for module in (ccctl.errors, probes.base.errors):
        drawn = set(re.findall(r"^\W*([A-Z]\w+)\s{2,}", module.__doc__, flags=re.MULTILINE))
        defined = {name for name in module.__all__ if isinstance(getattr(module, name), type)}
        assert drawn == defined
    for name, status in re.findall(r"── (\w+)\s+(\d+)", ccctl.errors.__doc__):
        assert ccctl.errors.EXIT_STATUS[getattr(ccctl.errors, name)] == int(status)
