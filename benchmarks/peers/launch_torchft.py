"""Start TorchFT's lighthouse and one process for each replica group, and restart a replica at once when it ends too early.

Tuned: a replica is given up after 1 s without heartbeats (they come every 0.1 s), a quorum waits 0.5 s for those that are
missing and is checked every 20 ms. Defaults are 5 s, 60 s and 100 ms.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading

from torch._C._distributed_c10d import TCPStore
from torchft.coordination import LighthouseServer

END = 2.0  # seconds


def main() -> None:
    ranks = int(os.environ["PEERS_RANKS"])
    lighthouse = LighthouseServer(
        bind="[::]:0", min_replicas=max(1, ranks // 2), join_timeout_ms=500, quorum_tick_ms=20, heartbeat_timeout_ms=1000
    )
    start = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    over = threading.Event()  # the training has ended
    command = [sys.executable, "-m", "peers.entry_torchft", *sys.argv[1:]]

    def keep(rank: int) -> None:
        again = 0
        while not over.is_set():
            environment = {
                "PEERS_RANK": str(rank),
                "PEERS_AGAIN": str(again),
                "PEERS_START": str(start.port),
                "TORCHFT_LIGHTHOUSE": lighthouse.address(),
            }
            process = subprocess.Popen(command, env={**os.environ, **environment})
            replicas[rank] = process
            if process.wait() == 0:
                over.set()
            again = 1

    replicas: dict[int, subprocess.Popen[bytes]] = {}
    threads = [threading.Thread(target=keep, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    while start.add("arrived", 0) < ranks and not over.wait(0.01):
        pass
    start.set("go", "")
    over.wait()
    for thread in threads:  # they end with the same step
        thread.join(END)
    for process in replicas.values():  # one that had not come back by then would train alone, from the first step
        process.kill()
    lighthouse.shutdown()


if __name__ == "__main__":
    main()
