"""Execution plans of MSCCL++, in the format of its versions 0.8 and later: read, judged, written.

``read_plan`` makes an ``ExecutionPlan`` of a JSON document, ``examine_plan`` gives a ``PlanVerdict`` on it,
and ``write_plan`` writes JSON again. ``plan_of`` makes a plan of a program. Read the modules in this order:

- ``plan``: the values; ``reader`` and ``writer``: the JSON.
- ``well_formed``: rules of form and the executor's limits.
- ``memory``: the cells of each buffer's chunks, and the result of a collective in them; ``elements``: the
  steps of single threads; ``happens_before``: the order of these steps.
- ``judge``: the checks of a plan.
- ``lower``: the plan of a program, from the order of its steps and the cells that they use (``accesses``).
  ``sums`` finds additions that become one, ``messages`` places messages, ``waits`` finds which steps must
  wait, ``emission`` writes the operations of the threadblocks.
- ``timing``: the time of such a plan by the executor's costs.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
