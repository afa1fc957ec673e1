"""A job whose rank 1 dies in its first start, for torchrun to start it again."""

import os

import torch
import torch.distributed as dist

import ccctl.torch  # noqa: F401 - where the entry points are not those of this tree


def main():
    start = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    dist.init_process_group("ccctl")
    dist.all_reduce(data := torch.ones(70_000))
    if start == 0 and dist.get_rank() == 1:
        os._exit(3)
    for _ in range(3):
        dist.all_reduce(data)
    if start == 1:
        assert data[0] == 2**4
        print("started again", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
