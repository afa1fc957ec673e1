from __future__ import annotations

import gc

import pytest

from probes.base import gc_paused


@pytest.fixture(params=[True, False])
def enabled(request):
    was = gc.isenabled()
    (gc.enable if request.param else gc.disable)()
    yield request.param
    (gc.enable if was else gc.disable)()


def test_the_collector_is_off_inside_and_as_before_outside(enabled):
    with gc_paused():
        assert not gc.isenabled()
        with gc_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled() is enabled


def test_an_error_leaves_the_collector_as_it_was(enabled):
    with pytest.raises(ValueError, match="wrong"), gc_paused():
        raise ValueError("wrong")
    assert gc.isenabled() is enabled
