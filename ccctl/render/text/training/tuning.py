"""A search for the best buffer size as text: its trials and the best one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ccctl import console
from ccctl.render import about, seconds
from probes.base import plural

if TYPE_CHECKING:
    from synth.fusion import Tuning

__all__ = ["draw"]


def draw(tuning: Tuning, predicted_s: Callable[[int], float] | None = None) -> None:
    """Print the trials in order; ``predicted_s`` simulates the time of a buffer size."""
    console.data(
        f"{tuning.subject}: {tuning.strategy} from {about(tuning.low_bytes)} to {about(tuning.high_bytes)}, "
        f"{plural(tuning.trials, 'trial')}"
    )
    best_bytes = tuning.best[0] if tuning.trials else 0
    rows = [
        (
            number,
            about(size),
            seconds(taken_s),
            *([seconds(predicted_s(size))] if predicted_s else []),
            "best" if size == best_bytes else "",
        )
        for number, (size, taken_s) in enumerate(
            zip(tuning.buffer_bytes.tolist(), tuning.seconds.tolist(), strict=True), start=1
        )
    ]
    console.table(("trial", "buffer", "iteration", *(["predicted"] if predicted_s else []), ""), rows)
