"""Profiling: alpha and beta of every link, round-robin over MPI, as one task of all ranks.

In: `options`. Out: the profile artifact (`probes.link_costs`), its outliers, and its drift from a
baseline.
Read `options`, `task`, `phases`, `assemble`, `outliers`, `drift`.
"""
