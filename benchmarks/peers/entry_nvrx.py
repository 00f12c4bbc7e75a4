"""Run the training under the in-process restart of nvidia-resiliency-ext, with the environment that `launch_nvrx` gives.

A lost rank ends the function on all ranks, in the same processes; a reserve takes the free place, and the function starts again from the
last checkpoint, which is the user's business (here rank 0's `torch.save`, as in the usual restart). Reserves are not refilled.

Tuned: every interval that has one is a tenth of a second, and the last call for other losses as well; defaults are 1 s. Its abort supports
NCCL only. On Gloo a survivor that does not wait for the lost rank itself notices the loss when its neighbour has closed its connections.
"""

# Annotations are read while it runs, so no `from __future__ import annotations`.
import os
from datetime import timedelta

import torch.distributed as dist
from nvidia_resiliency_ext import inprocess
from torch._C._distributed_c10d import PrefixStore, TCPStore
from torch.nn.parallel import DistributedDataParallel

from peers.checkpoints import checkpoints_of
from peers.log import Writer
from peers.training import Arguments, Training, arguments

OFTEN = timedelta(seconds=0.1)
TIMEOUT = timedelta(seconds=10)


def train(args: Arguments, call: inprocess.CallWrapper | None = None) -> None:
    assert call is not None  # it is inserted because of its type
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = PrefixStore(f"training-{call.iteration}", TCPStore("localhost", int(os.environ["MASTER_PORT"]), is_master=False))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=TIMEOUT)
    log = Writer(args.record, ranks)
    training = Training(args)
    training.model = DistributedDataParallel(training.net)
    checkpoints = checkpoints_of(training, rank)
    done = checkpoints.load()
    log.write("ready", rank, done)
    for step in range(done + 1, args.steps + 1):
        training.step(log, rank, step)
        if step % args.every == 0 and step < args.steps:
            with call.atomic():
                checkpoints.save(step)
    training.finish(log, rank)


def main() -> None:
    wrapper = inprocess.Wrapper(
        rank_assignment=inprocess.Compose(
            inprocess.rank_assignment.MaxActiveWorldSize(int(os.environ["PEERS_RANKS"])),
            inprocess.rank_assignment.FillGaps(),
        ),
        monitor_thread_interval=OFTEN,
        monitor_process_interval=OFTEN,
        heartbeat_interval=OFTEN,
        progress_watchdog_interval=OFTEN,
        last_call_wait=OFTEN,
        soft_timeout=timedelta(seconds=30),
        hard_timeout=timedelta(seconds=45),
    )
    wrapper(train)(arguments())


if __name__ == "__main__":
    main()
