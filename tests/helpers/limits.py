"""Longest wait of a test for something that should end.

Only a hang takes this long: no test fails because the machine is busy.
"""

HANG_S = 900
