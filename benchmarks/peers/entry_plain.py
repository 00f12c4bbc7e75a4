"""Run the training under torchrun: without checkpoints (the ideal), or continuing from the last one after a restart."""

from __future__ import annotations

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from peers.log import Writer
from peers.training import Training, arguments


def main() -> None:
    args = arguments()
    dist.init_process_group("gloo")
    rank, log = dist.get_rank(), Writer(args.record, dist.get_world_size())
    training = Training(args)
    training.model = DistributedDataParallel(training.net)
    checkpoints = None
    if args.every:
        from peers.checkpoints import checkpoints_of  # here, because the ideal does without what it imports

        checkpoints = checkpoints_of(training, rank)
    done = checkpoints.load() if checkpoints else 0
    log.write("ready", rank, done)
    for step in range(done + 1, args.steps + 1):
        training.step(log, rank, step)
        if checkpoints and step % args.every == 0 and step < args.steps:
            checkpoints.save(step)
    training.finish(log, rank)
    if checkpoints:
        checkpoints.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
