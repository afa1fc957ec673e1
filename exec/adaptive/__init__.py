"""Adaptation while a job runs: late ranks relay, the job survives lost ranks, schedules follow the links.

In: a group of ranks, and the costs of their links. Out: a `Session`, whose collectives stay exact throughout.

Read `session`, the public face, and `session_state`, which its threads share. `backend` carries out decisions
on each rank, and it alone changes `session_state`. On the coordinating rank, `coordinator` decides, and
`direction` sends its decisions. The ranks exchange `messages`; `contexts` are plans on registered buffers;
`drift`, `links_now` and `replanner` decide when to measure links, measure them, and find new schedules;
`severed` tracks hosts that do not reach each other. `iterations` is a job to try it with.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
