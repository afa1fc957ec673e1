"""What every executor shares: memory layout, moves, data types and operators, expected results."""
