"""Run the training as one replica of TorchFT 0.2, with the environment that `launch_torchft` gives.

Every rank is a replica group of one process: it shares nothing with the others but the lighthouse, and is restarted by itself. As TorchFT's
documentation advises: `init_sync=False` with equal seeds, the quorum in parallel with the forward pass, timeouts of some steps.

One repair: the communication hook of TorchFT 0.2.0's DistributedDataParallel returns the managed work's inner future. On Gloo
there is none after a wait that failed (`assert fut._fut`), which kills every survivor of a loss. `hook` below does the same otherwise,
and returns a future that is done: the wait is over by then, and the bucket averaged in place.
"""

# Annotations are read while it runs, so no `from __future__ import annotations`.
import os
from datetime import timedelta
from typing import Any

import torch
import torchft
from torch._C._distributed_c10d import GradBucket, TCPStore
from torchft.ddp import DistributedDataParallel

from peers.log import Writer
from peers.training import Training, arguments

TIMEOUT = timedelta(seconds=10)


def hook(manager: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    manager.allreduce(bucket.buffer()).wait()  # an error is kept in the manager, and the step is not committed
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def main() -> None:
    args = arguments()
    rank, ranks = int(os.environ["PEERS_RANK"]), int(os.environ["PEERS_RANKS"])
    again = bool(int(os.environ["PEERS_AGAIN"]))
    log = Writer(args.record, ranks)
    training = Training(args)

    def load(state: dict[str, Any]) -> None:
        training.net.load_state_dict(state["model"])
        training.optimizer.load_state_dict(state["optimizer"])

    def save() -> dict[str, Any]:
        return {"model": training.net.state_dict(), "optimizer": training.optimizer.state_dict()}

    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    if not again:  # all begin together, so that the first quorum has all
        start = TCPStore("localhost", int(os.environ["PEERS_START"]), is_master=False)
        start.add("arrived", 1)
        start.wait(["go"])
    manager = torchft.Manager(
        pg=torchft.ProcessGroupGloo(timeout=TIMEOUT),
        load_state_dict=load,
        state_dict=save,
        min_replica_size=max(1, ranks // 2),
        timeout=TIMEOUT,
        quorum_timeout=TIMEOUT,
        connect_timeout=TIMEOUT,
        rank=0,
        world_size=1,
        store_addr="localhost",
        store_port=store.port,
        hostname="localhost",
        replica_id=f"replica_{rank}",
        init_sync=False,
    )
    DistributedDataParallel._comm_hook = staticmethod(hook)
    training.model = DistributedDataParallel(manager, training.net)
    optimizer = torchft.Optimizer(manager, training.optimizer)
    log.write("ready", rank, 0)
    while (done := manager.current_step()) < args.steps:
        if done or not again:  # a replica that comes back does not know its step yet
            log.write("begin", rank, done + 1)
        optimizer.zero_grad()
        training.backward(done + 1, rank)
        optimizer.step()
        if manager.current_step() > done:
            log.write("commit", rank, manager.current_step(), world=manager.num_participants())
    training.finish(log, rank)
    manager.shutdown(wait=False)
    os._exit(0)  # its threads and servers do not end by themselves


if __name__ == "__main__":
    main()
