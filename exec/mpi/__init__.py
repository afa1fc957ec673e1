"""The executor over MPI: programs on CPUs, within a host through shared memory, between hosts by messages.

In: a program laid out for this rank. Out: a plan that runs it many times. Read `plan`, `encode`,
`interpreter` (a compiled loop), `connections` and `wires`.
"""
