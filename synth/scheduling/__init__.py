"""Scheduling: an order for given sends (list scheduling), places in a cycle for those of a period (modulo
scheduling), or sends for given chunks (matching).
"""
