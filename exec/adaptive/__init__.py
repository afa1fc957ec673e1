"""Adaptation while a job runs: late ranks relay, lost ones are done without, schedules follow the links.

In: a group of ranks, and what their links carry. Out: a `Session`, whose collectives give exact results
meanwhile; decisions to wait or to go; policies compared on arrivals of the past.

Read `session`, the public face, with `backend` (what each rank carries out) and `direction` (what the
coordinating rank does around `coordinator`, which decides); `messages` between them; `contexts`, plans on
registered buffers, with `phase_buffers`; `links_now` and `replanner`, new costs and new schedules;
`ski_rental` and `buy_cost` with `late_bases`, the rule. `iterations` is a job to try it with; `arrivals` and
`policies` replay the rule.
"""
