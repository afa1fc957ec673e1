"""Thousands of equal ranks: by symmetry (`symmetric`), or with failures along trees (`host_trees`).

In: a symmetric network and a size. Out: a symmetric or periodic schedule, proven, with its bounds.
"""
