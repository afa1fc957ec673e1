"""The matrix of ``nvidia-smi topo -m``, read to a topology."""
