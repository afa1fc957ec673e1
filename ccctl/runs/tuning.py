"""Trials that tune the size of the fusion buffer, saved to a file after each."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ccctl import console
from ccctl.artifacts import codec, exists
from ccctl.errors import UsageError
from ccctl.render import about, seconds

if TYPE_CHECKING:
    from synth.fusion import Tuning

__all__ = ["resumed", "tuned"]


def resumed(begun: Tuning, state: str | None) -> Tuning:
    """Return the search in the file ``state``, or ``begun`` if the file does not exist.

    Raises UsageError if the search in the file has another subject, strategy, range or seed.
    """
    if state is None or not exists(state):
        return begun
    found: Tuning = codec.read(state, "tuning").body
    for name in ("subject", "strategy", "low_bytes", "high_bytes", "first_bytes", "seed"):
        if (there := getattr(found, name)) != (asked := getattr(begun, name)):
            raise UsageError(
                f"--state {state}: it is a search with {name} {there!r}, but {asked!r} was requested",
                hint="Name another file to start another search.",
            )
    return found


def tuned(search: Tuning, trials: int, measure: Callable[[int], float], state: str | None) -> Tuning:
    """Continue the search up to ``trials`` trials, and return it; save it to ``state`` after each trial."""
    with console.progress("tune", trials) as bar:
        while search.trials < trials:
            buffer_bytes = search.next_bytes()
            taken_s = measure(buffer_bytes)
            search = search.then(buffer_bytes, taken_s)
            if state is not None:
                codec.write(state, "tuning", search)
            bar.update(search.trials, f"{about(buffer_bytes)}: {seconds(taken_s)}")
            console.detail(f"trial {search.trials}: {about(buffer_bytes)} takes {seconds(taken_s)}")
    return search
