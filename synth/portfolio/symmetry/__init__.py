"""Synthesis for thousands of ranks on symmetric networks.

In: a symmetric network and a size. Out: a proven schedule with its bounds: a symmetric one (`symmetric`), or,
if parts have failed, a periodic all_reduce along trees between hosts (`host_trees`).
"""
