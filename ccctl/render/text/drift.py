"""The changes since a baseline, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ccctl import console
from ccctl.render import figures
from probes.base import plural

if TYPE_CHECKING:
    from probes.profiling import Drift

__all__ = ["draw", "summary"]


def draw(drift: Drift, baseline: str) -> None:
    """Print every change since ``baseline``, the worst first."""
    for finding in drift.findings:
        console.data(f"drift: {finding}")
    for note in drift.notes:
        console.data(f"changed: {note}")
    if not drift.findings:
        links = plural(drift.compared, "link")
        console.data(f"no drift: {links} as fast as in {baseline}, within the noise of both")


def summary(drift: Drift) -> dict[str, Any]:
    """Return the changes as plain values."""
    changes = [
        {
            **figures(change, "what quantity before now"),
            "ratio": change.now / change.before,
            "explained_by_spread": change.allowed,
            "worse": change.worse,
            "links": [list(pair) for pair in change.links],
        }
        for change in drift.changes
    ]
    return {
        "compared": drift.compared,
        "changes": changes,
        "gone": list(drift.gone),
        "new": list(drift.new),
        "unmeasured": drift.unmeasured,
        "added": drift.added,
    }
