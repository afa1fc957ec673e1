"""Search for schedules on several hosts: rank 0 searches, the other ranks make its attempts.

In: a request, or a sweep. Out: the result that `synth.portfolio` finds on one machine, for any number of
ranks.

Read `task`, then `rank_pool`.
"""
