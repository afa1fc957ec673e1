"""`ccctl schema` as a user runs it."""

import json

import pytest

from ccctl.artifacts.codec import KINDS


def test_the_kinds_are_listed(run_ccctl):
    done = run_ccctl("schema")
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == list(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_schema_is_printed(run_ccctl, kind):
    done = run_ccctl("schema", kind)
    found = json.loads(done.stdout)
    assert found["title"] == f"ccctl {kind}"
    assert found["properties"]["body"]["$ref"].rpartition("/")[2] in found["$defs"]


def test_columns_say_what_they_hold(run_ccctl):
    found = json.loads(run_ccctl("schema", "profile").stdout)["$defs"]["Links"]["properties"]
    assert found["src"]["items"] == {"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1}
    assert found["alpha_s"]["items"] == {"type": "number"}
