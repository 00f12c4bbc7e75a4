"""Start the ranks and the reserves of an in-process restart, and host the store at which they meet.

The store is here because NVRx would host it in rank 0, whose loss would then end the job: rank 0 finds the port taken and connects.
"""

from __future__ import annotations

import os
import subprocess
import sys

from torch._C._distributed_c10d import TCPStore


def main() -> None:
    total = int(os.environ["PEERS_RANKS"]) + int(os.environ["PEERS_RESERVES"])
    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    shared = {"WORLD_SIZE": str(total), "MASTER_ADDR": "localhost", "MASTER_PORT": str(store.port)}
    command = [sys.executable, "-m", "peers.entry_nvrx", *sys.argv[1:]]
    workers = [subprocess.Popen(command, env={**os.environ, **shared, "RANK": str(rank)}) for rank in range(total)]
    for worker in workers:
        worker.wait()


if __name__ == "__main__":
    main()
