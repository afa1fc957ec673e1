"""Peers: the libraries that a benchmark races against, each behind the same few calls.

In: a communicator and a collective. Out: calls to time on the same buffers. Read `base`, `registry`.
"""
