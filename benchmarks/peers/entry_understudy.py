"""Run the training under `understudy run`."""

from __future__ import annotations

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import understudy
from peers.log import Writer
from peers.training import Training, arguments


def main() -> None:
    args = arguments()
    job = understudy.join(backend="gloo")
    log = Writer(args.record, job.world_size)
    training = Training(args)
    training.model = DistributedDataParallel(training.net)
    job.register(model=training.model, optimizer=training.optimizer)

    @job.step
    def train(step: int) -> None:
        log.write("begin", job.rank, step)
        training.backward(step, job.rank)
        training.optimizer.step()
        training.optimizer.zero_grad()

    log.write("ready", job.rank, job.committed)
    for done in job.steps(args.steps):
        train(done + 1)
        log.write("commit", job.rank, done + 1)
    training.finish(log, job.rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
