"""Lower bounds on the time of a collective on a network, each proven and named.

In: network, collective, chunk size. Out: `Bound` records, the largest first (`bounds.bounds`).
"""
