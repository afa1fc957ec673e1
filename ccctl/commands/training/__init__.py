"""`ccctl training`: how ranks that train communicate, planned, predicted and compared.

In: a model, a network, or when ranks were ready. Out: a plan, or what it gains. Read ``fusion``,
``averaging``, ``stragglers``, then ``compare``, which trains.
"""

from __future__ import annotations

from ccctl.commands.training import averaging, compare, fusion, stragglers

__all__ = ["EXAMPLES", "VERBS", "training"]

_MODULES = (fusion, averaging, stragglers, compare)
EXAMPLES = tuple(example for module in _MODULES for example in module.EXAMPLES)
VERBS = (fusion.fusion, averaging.averaging, stragglers.stragglers, compare.compare)


def training() -> None:
    """Plan, predict and compare communication of training jobs.

    Gradients in buckets behind the backward pass, parameters averaged in small groups, and going ahead
    without late ranks; and small training runs by each of these ways.
    """
