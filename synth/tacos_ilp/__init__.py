"""TACOS-ILP (Sec. V): the time-expanded network, its integer program, the search over horizons, recovery."""
