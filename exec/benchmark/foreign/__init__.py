"""Files of other tools as reports: nccl-tests, the OSU benchmarks, NCCL's Inspector."""
