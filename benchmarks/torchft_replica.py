"""One replica of torchft that averages a tensor over and over, for ``recovery_peers.py``; needs torchft.

    python torchft_replica.py NUMBER ELEMENTS STEPS COMPUTING_S

The script prints a line "result AT_S MEMBERS VALUE" for each step that all members committed, with the host's
monotonic clock. TORCHFT_LIGHTHOUSE is the address of the lighthouse.
"""

import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torchft import Manager, ProcessGroupGloo


def main() -> None:
    """Average until the steps are done."""
    number, elements, steps, computing_s = (
        int(sys.argv[1]),
        int(sys.argv[2]),
        int(sys.argv[3]),
        float(sys.argv[4]),
    )
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=30)),
        load_state_dict=lambda state: None,
        state_dict=lambda: {},
        min_replica_size=2,
        timeout=timedelta(seconds=30),
        rank=0,
        world_size=1,
        store_addr="127.0.0.1",
        store_port=store.port,
        replica_id=f"replica {number}",
        use_async_quorum=False,
        init_sync=False,
    )
    while manager.current_step() < steps:
        time.sleep(computing_s)
        manager.start_quorum()
        data = torch.full((elements,), float(number))
        manager.allreduce(data).wait()
        if manager.should_commit():
            print("result", time.monotonic(), manager.num_participants(), float(data[0]), flush=True)
    manager.shutdown()


if __name__ == "__main__":
    main()
