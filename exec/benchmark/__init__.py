"""Benchmarks of collectives: runs, timing, reports, regressions against a baseline."""
