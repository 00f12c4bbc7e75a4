"""`python -m torch.distributed.run --standalone --nproc-per-node 2 -m tests.contract.device_times nccl`: do events around collectives show
which of two ranks is slow? For `scripts/gpu_check.sh`, on a GPU; both ranks may share one.

Rank 1 computes three times as much as rank 0 in each step, so rank 0 waits for it: the share of the time that is its own must be the
larger one with collectives that are waited for at once. Exit code 0 if it is. With DDP the shares are only printed: where both ranks share
one GPU each slows the other down, and in one of three runs rank 0 had the larger one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tests.worker.steps import step_of
from understudy.worker.collectives import device_times
from understudy.worker.collectives.device_times import CudaEvents, DeviceTimes

STEPS, SIDE, WORK = 20, 2048, 8


def shares(step: Callable[[], None]) -> list[float]:
    """Of all steps that were measured, but those before the device has warmed up."""
    device_times.INTERVAL, device_times.PAUSE = 0.0, 0.0
    times, found = DeviceTimes(CudaEvents()), list[float]()
    for _ in range(STEPS):
        times.attempt(step_of())
        step()
        times.before_vote(step_of())
        if (share := times.take()) is not None:
            found.append(share)
    return found[STEPS // 4 :]


def slower_is_seen(name: str, step: Callable[[], None]) -> bool:
    """The same on both ranks."""
    found = sorted(shares(step))
    median = torch.tensor([found[len(found) // 2] if found else -1.0], device="cuda")
    both = [torch.zeros_like(median) for _ in range(2)]
    dist.all_gather(both, median)
    first, second = (float(one) for one in both)
    if dist.get_rank() == 0:
        print(f"{name}: {len(found)} of {STEPS} steps measured; own share of rank 0: {first:.3f}, of rank 1: {second:.3f}", flush=True)
    return 0.0 <= first < second


def main() -> int:
    rank, count = int(os.environ["RANK"]), torch.cuda.device_count()
    torch.cuda.set_device(rank % count)
    if count < int(os.environ["WORLD_SIZE"]) and "NCCL_MULTI_RANK_GPU_ENABLE" not in os.environ:
        os.environ.setdefault("NCCL_HOSTID", f"rank-{rank}")  # NCCL refuses two ranks of one host on one GPU
    dist.init_process_group(sys.argv[1])
    slow = dist.get_rank() == 1
    factor = torch.randn(SIDE, SIDE, device="cuda") / SIDE
    numbers = torch.ones(1024, device="cuda")

    def waiting() -> None:
        product = factor
        for _ in range(WORK * (3 if slow else 1)):
            product = product @ factor
        dist.all_reduce(numbers)

    model = DistributedDataParallel(torch.nn.Sequential(*(torch.nn.Linear(SIDE, SIDE, device="cuda") for _ in range(4))))

    def overlapping() -> None:
        model(torch.randn(256 * (3 if slow else 1), SIDE, device="cuda")).sum().backward()

    seen = slower_is_seen("waited for at once", waiting)
    slower_is_seen("DDP", overlapping)
    dist.destroy_process_group()
    return 0 if seen else 1


if __name__ == "__main__":
    sys.exit(main())
