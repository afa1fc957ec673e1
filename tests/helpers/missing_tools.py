"""Reasons why this machine cannot run a test; an empty string where it can."""

import functools
import importlib.util

from ccctl.render.svg.files import png
from probes.base.errors import UnavailableError
from synth.simulation.simgrid import interpreter

_LETTER = "<svg xmlns='http://www.w3.org/2000/svg' width='20' height='20'><text y='16'>M</text></svg>"


@functools.cache
def no_simgrid() -> str:
    """Whether SimGrid's Python bindings are missing."""
    return "" if interpreter() else "SimGrid (python3-simgrid) is not installed"


def no_torch() -> str:
    """Whether torch is missing."""
    return "" if importlib.util.find_spec("torch") else "torch is not installed"


@functools.cache
def no_png() -> str:
    """Whether resvg, or every font, is missing."""
    try:
        png(_LETTER)
    except UnavailableError as error:
        return error.message
    return ""
