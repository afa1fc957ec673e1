"""Tables that ``nvidia-smi topo`` and ``rocm-smi --showtopo`` print for people, read to a topology."""
