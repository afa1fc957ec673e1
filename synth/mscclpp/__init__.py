"""Execution plans of MSCCL++, in the format of its versions 0.8 and later: read, judged, written.

In go JSON documents (``read_plan``); out come a ``Plan``, the ``Verdict`` on it (``examine_plan``) and JSON
again (``write_plan``). A plan can also be made of a program (``plan_of``). To be read in this order:

- ``plan``: the values; ``reader`` and ``writer``: the JSON.
- ``well_formed``: rules of form and the executor's limits.
- ``memory``: which cells the buffers' chunks are, and what a collective must leave in them; ``elements``:
  what single threads do; ``happens_before``: in which orders that can be.
- ``judge``: all of it held against a plan.
- ``lower``: the plan of a program; ``messages`` says where its messages are put, ``emission`` writes the
  operations of its threadblocks.
"""

from synth.mscclpp.judge import Verdict, examine_plan, judge_plan
from synth.mscclpp.lower import plan_of
from synth.mscclpp.plan import Plan
from synth.mscclpp.reader import is_plan, read_plan
from synth.mscclpp.writer import write_plan

__all__ = ["Plan", "Verdict", "examine_plan", "is_plan", "judge_plan", "plan_of", "read_plan", "write_plan"]
