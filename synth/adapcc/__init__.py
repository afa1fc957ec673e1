"""AdapCC's synthesis (Sec. IV-D): trees or paths of sub-collectives, as an integer program or a heuristic."""
