"""The portfolio: which methods are tried on a request, with which options, and the best of them.

In: a request (network, collective, size). Out: the best proven schedule with its bound.
Read `synthesize`, `attempts`, `attempt_runner`, `incumbent`, `size_sweep`.
"""
