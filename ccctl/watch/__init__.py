"""What ``ccctl watch`` keeps between its runs: the state folder, and what one run finds and decides."""
