"""Integer programs: one model, and the solvers CBC and HiGHS behind one door."""
