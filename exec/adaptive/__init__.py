"""Adaptation while a job runs: late ranks relay, lost ones are done without, schedules follow the links.

In: a group of ranks, and what their links carry. Out: a `Session`, whose collectives give exact results
meanwhile.

Read `session`, the public face, with `backend` (what each rank carries out) and `direction` (what the
coordinating rank does around `coordinator`, which decides); `messages` between them; `contexts`, plans on
registered buffers; `drift`, `links_now` and `replanner`, when links are measured, new costs and new
schedules; `severed`, hosts that do not reach each other. `iterations` is a job to try it with.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
