"""What runs on ranks that train with PyTorch.

`backend` is the process group that `init_process_group("ccctl")` makes. This page imports no torch.
"""
