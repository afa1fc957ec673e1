"""The search for schedules on several hosts: rank 0 searches, the other ranks make its attempts.

In: a request, or a sweep. Out: what `synth.portfolio` finds on one machine, the same whatever the ranks.
Read `task`, `rank_pool`.
"""
