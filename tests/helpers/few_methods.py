"""Searches of the watches in tests: few methods, and an equal request is searched once for all tests."""

import pickle
from dataclasses import replace

from exec import replan
from synth import synthesize
from synth.portfolio import planning

__all__ = ["search_briefly"]

_FOUND = {}


def search_briefly(monkeypatch):
    """Let watches try few methods: how many there are changes nothing about a watch."""

    def search(request, **how):
        briefly = replace(request, quick=True)
        key = pickle.dumps(briefly)
        if key not in _FOUND:
            _FOUND[key] = synthesize(briefly, **how)
        return _FOUND[key]

    monkeypatch.setattr(replan, "synthesize", search)
    # A greedy search takes as long as all others.
    monkeypatch.setattr(planning, "_QUICK", ("forest", "direct"))
