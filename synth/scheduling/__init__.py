"""Scheduling: an order for given sends (list scheduling), or sends for given chunks (matching)."""
