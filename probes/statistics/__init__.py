"""Statistics of measured times: the alpha-beta fit, bootstrap decisions, change points.

In: arrays of times. Out: parameters with their confidence.
"""
