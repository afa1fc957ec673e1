"""Reports of benchmarks as text: the table of nccl-tests, several side by side, and where the time went."""
