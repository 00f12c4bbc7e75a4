"""`python -m tests.contract.device_samples`: what a rank notes of its collectives' inputs on a GPU, and what that costs.
For `scripts/gpu_check.sh`, on a GPU, with NCCL and one rank.

A sample must hold what was there when the collective was issued, though the script writes into the same memory right after that, or lets go
of it; it must have come while a later kernel does not end; and within a graph nothing is noted. Exit code 0 if all of that is so.

Cost: a step of 25 collectives of 25 MB, which are issued without a wait, as DDP issues its buckets, with samples and without, in turn.
The host's time is that of issuing them; the device's that of the whole step, by events; and the vote's what the host then does: in
a step as usual, and in one that is compared as a redo. Medians of `STEPS` steps; the differences are what samples cost.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from tests.worker.steps import step_of
from tests.worker.verification.issuing_rank import Rank
from understudy.worker.verification.device_samples import STRIDE, DeviceSample, DeviceSamples

STEPS, BUCKETS, SIZE = 200, 25, 25_000_000 // 4  # numbers of 4 bytes
LIMIT = 20.0  # seconds for what takes microseconds
FOREVER = 'extern "C" __global__ void forever(volatile int* stop) { while (*stop == 0) { } }'


SAMPLES = DeviceSamples()


def take(tensor: torch.Tensor, offset: int = 0) -> DeviceSample:
    sample = SAMPLES.take(tensor, offset)
    assert sample is not None
    return sample


def come(sample: DeviceSample) -> int | None:
    """The digest; None: it has not arrived within `LIMIT`."""
    end = time.monotonic() + LIMIT
    while (digest := sample.value()) is None and time.monotonic() < end:
        time.sleep(0.001)
    return digest


def holds_what_was_there() -> bool:
    good = True
    for kind in (torch.float32, torch.bfloat16, torch.float64, torch.complex64, torch.uint8, torch.bool):
        for size in (7, 5_000_000):
            tensor = torch.randint(0, 2, (size,), device="cuda").to(kind)
            expected = come(take(tensor.clone(), 3))
            taken = take(tensor, 3)
            tensor.logical_not_()  # at once, on the same stream
            other = take(tensor, 3)
            good = good and expected is not None and come(taken) == expected != come(other)
    rows = torch.randn(64, 4096, device="cuda")
    good = good and come(take(rows.t())) == come(take(rows.t().contiguous())) != come(take(rows))
    expected, temporary = come(take(rows * 2)), rows * 2
    taken = take(temporary)
    del temporary
    torch.empty(64, 4096, device="cuda").fill_(1)  # in its memory
    return good and come(taken) == expected


def comes_before_a_kernel_that_does_not_end() -> bool:
    tensor, stop = torch.randn(SIZE, device="cuda"), torch.zeros(1, dtype=torch.int32, device="cuda")
    expected, aside = come(take(tensor)), torch.cuda.Stream()  # type: ignore[no-untyped-call]
    kernel = torch.cuda._compile_kernel(FOREVER, "forever")
    taken = take(tensor)
    kernel(grid=(1, 1, 1), block=(1, 1, 1), args=[stop])
    after = take(tensor)
    early = come(taken) == expected and after.value() is None
    with torch.cuda.stream(aside):
        stop.fill_(1)
    return early and come(after) == expected


def leaves_graphs_alone() -> bool:
    tensor = torch.zeros(SIZE, device="cuda")
    before, graph = take(tensor), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        inside = SAMPLES.take(tensor, 0)
        found = come(before)  # any thread may look meanwhile
        tensor += 1
    graph.replay()
    torch.cuda.synchronize()
    return inside is None and found is not None and float(tensor[0]) == 1


@dataclass
class Cost:
    """Milliseconds of each step."""

    host: list[float]
    device: list[float]
    vote: list[float]
    compared: list[float]  # the same in a redo


def cost_of_steps() -> dict[bool, Cost]:
    """Return what steps cost: with samples (True) or without."""
    rank, found = Rank(), {True: Cost([], [], [], []), False: Cost([], [], [], [])}
    buckets = [torch.randn(SIZE, device="cuda") for _ in range(BUCKETS)]
    factor = torch.randn(4096, 4096, device="cuda")
    rank.issued.before_vote(rank.step)
    for number in range(2 * STEPS + 20):
        noted = number % 2 == 0
        torch.cuda.synchronize()
        step, first, last = step_of(), torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        rank.progress.transaction = number
        first.record()
        rank.issued.begin(step)
        if noted:
            rank.issued.attempt(step)
        for _ in range(4):
            torch.matmul(factor, factor)  # keeps the device busy while the host issues
        began = time.perf_counter()
        works = [dist.all_reduce(bucket, async_op=True) for bucket in buckets]
        issued = time.perf_counter()
        for work in works:
            work.wait()
        last.record()
        torch.cuda.synchronize()
        before = time.perf_counter()
        if noted:
            rank.issued.before_vote(step)
        voted = time.perf_counter()
        if noted:
            rank.issued.rollback(step)  # as if it were to be done again: the vote after that compares
            rank.issued.before_vote(step)
        compared = time.perf_counter()
        rank.issued.committed(step)
        if number >= 20:
            one = found[noted]
            one.host.append(1000 * (issued - began))
            one.device.append(first.elapsed_time(last))
            one.vote.append(1000 * (voted - before))
            one.compared.append(1000 * (compared - voted))
    rank.issued.remove()
    return found


def main() -> int:
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", rank=0, world_size=1, store=HashStore())
    checks = (holds_what_was_there, comes_before_a_kernel_that_does_not_end, leaves_graphs_alone)
    good = True
    for check in checks:
        fits = check()
        good = good and fits
        print(f"{check.__name__.replace('_', ' ')}: {'yes' if fits else 'NO'}", flush=True)
    costs = cost_of_steps()
    medians = {noted: {name: statistics.median(times) for name, times in vars(cost).items()} for noted, cost in costs.items()}
    print(f"{BUCKETS} collectives of {4 * SIZE / 1e6:.0f} MB, milliseconds of a step, medians of {STEPS}; one of {STRIDE} numbers is read")
    for name, what in (
        ("host", "the host issues them"),
        ("device", "the device, begin to end"),
        ("vote", "the host, for the vote"),
        ("compared", "the host, for a redo's vote"),
    ):
        without, noted = medians[False][name], medians[True][name]
        print(f"  {what}: {without:.3f} without, {noted:.3f} with: {noted - without:+.3f}", flush=True)
    dist.destroy_process_group()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
