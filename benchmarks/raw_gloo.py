"""Measure the raw bandwidth of Gloo on this machine: one send and receive of BYTES between two processes, several times.

    python benchmarks/raw_gloo.py BYTES

Prints JSON: {"bytes", "seconds": [one for each repetition]}. Understudy's state transfer is compared with it.
The receiver measures from the time at which both are ready to the last byte; the first exchange is left out,
because it opens the connection and touches the memory for the first time.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn

REPETITIONS = 7


def exchange(rank: int, meeting: str, results: str, size: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    buffer = torch.full((size,), rank, dtype=torch.uint8)
    seconds = []
    for _ in range(REPETITIONS + 1):
        dist.barrier()
        start = time.perf_counter()
        if rank == 0:
            dist.send(buffer, 1)
        else:
            dist.recv(buffer, 0)
        seconds.append(time.perf_counter() - start)
    if rank == 1:
        Path(results).write_text(json.dumps({"bytes": size, "seconds": seconds[1:]}))
    dist.destroy_process_group()


def main() -> None:
    size = int(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        results = str(Path(folder, "results"))
        spawn(exchange, (str(Path(folder, "meeting")), results, size), nprocs=2)  # type: ignore[no-untyped-call]
        print(Path(results).read_text())


if __name__ == "__main__":
    main()
