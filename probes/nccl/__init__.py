"""NCCL's topology files: read to a topology, and written for NCCL_TOPO_FILE."""
