"""Schedules that a runtime can load: within its limits, proven, and as near to the bound as those allow."""

from __future__ import annotations

from typing import Any

import pytest

from probes.base import UsageError
from synth import Request, synthesize
from synth.check import check, judge
from synth.msccl import beyond, read_xml, write_xml
from synth.mscclpp import examine_plan
from synth.networks import pod
from synth.portfolio import RUNTIMES, loadable

SIZE_BYTES = 1 << 16


def _request(runtime: str, network: str = "dgx-a100:2", size_bytes: int = SIZE_BYTES) -> Request:
    return Request(pod(network), "all_gather", size_bytes=size_bytes, jobs=0, runtime=runtime)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_what_is_found_loads_and_is_proven(runtime: str) -> None:
    found = synthesize(_request(runtime))
    assert found.loaded is not None
    assert found.loaded.runtime == runtime
    assert check(found.schedule) == []
    assert judge(found.loaded.program) == []
    if runtime == "mscclpp":
        assert found.loaded.plan is not None
        assert examine_plan(found.loaded.plan).findings == ()
        assert found.loaded.plan.operations <= loadable.MOST_PLAN_OPERATIONS
    else:
        assert beyond(found.loaded.program, runtime) == []
        assert read_xml(write_xml(found.loaded.program), "again").steps == found.loaded.program.steps
    outcome = found.listed.outcome
    assert outcome is not None
    assert outcome.percent_of_optimal <= found.loaded.unrestricted_percent + 1e-9


def test_the_fastest_of_all_is_kept_if_it_loads() -> None:
    free = synthesize(_request("", "dgx-a100:1", 64 << 20))
    found = synthesize(_request("msccl", "dgx-a100:1", 64 << 20))
    assert found.loaded is not None
    assert found.loaded.limit == ""
    assert found.loaded.tried == 1
    assert found.listed.sends == free.listed.sends


def test_a_limit_that_forbids_the_fastest_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loadable, "_MOST_SENDS", 500)
    found = synthesize(_request("msccl"))
    assert found.loaded is not None
    assert "sends are more than its tables hold" in found.loaded.limit
    assert found.listed.sends <= 500


def test_limits_that_forbid_everything_are_all_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loadable, "_MOST_SENDS", 1)
    with pytest.raises(UsageError, match="msccl can load none of") as raised:
        synthesize(_request("msccl"))
    assert "sends are more than its tables hold" in raised.value.message


@pytest.mark.parametrize(
    "options",
    [
        {"runtime": "nccl"},
        {"runtime": "msccl", "method": "periodic"},
        {"runtime": "msccl", "method": "symmetric"},
    ],
)
def test_requests_that_no_runtime_serves_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        synthesize(pod("dgx-a100:1"), "all_gather", SIZE_BYTES, **options)
