"""The checker: whether a schedule or a program does what its collective asks, for every chunk.

In: what any maker made. Out: a verdict with the place of each flaw. Nothing of the makers is believed.
Read `schedule` and `linear_pass`; for any number of periods `periodic`; for programs `well_formed`,
`program`, `symbolic_values`, `races`.
"""
