"""The training script of the fault tests: small, fast, and with everything in it that a recovery could get wrong.

    train.py --out FOLDER --mode ddp|hsdp|tp [--faults PLAN] [--corruption KIND] [--data-workers N]

Each rank appends a line per step and per evaluation to FOLDER/log-RANK.txt, and writes its complete final state, as
digests by name, to FOLDER/final-RANK.json. Faults never change numbers, so a reference run is the same script
without a plan.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
from pathlib import Path
from typing import Any

import numpy
import torch
import torch.distributed as dist
from tests.faults.jobs import corruption
from tests.faults.jobs.fault_points import FaultPoints
from tests.faults.jobs.networks import MODES, WIDTH
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.utils.data import DataLoader, Dataset, DistributedSampler, get_worker_info

import understudy
from understudy.worker import session

STEPS = 24
EVALUATE_EVERY = 3
SAMPLES, BATCH = 192, 8


class Noisy(Dataset[Tensor]):
    """Samples with noise from every global random stream of the process that reads them."""

    def __init__(self, points: FaultPoints) -> None:
        self._data = torch.randn(SAMPLES, WIDTH, generator=torch.Generator().manual_seed(5))
        self._points = points
        self._served = 0

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Tensor:
        self._served += 1
        if get_worker_info() is None:
            if self._served % BATCH == 3:
                self._points.fire("data loader")
        elif self._served == BATCH + 3:  # `step` is the one at which this process was forked: an epoch's first one
            self._points.fire("process of the data loader")
        noise = torch.rand(WIDTH) + random.random() + float(numpy.random.rand())
        return self._data[index] + 0.01 * noise


class Counter:
    """An object of the user's own, different on each rank."""

    def __init__(self, rank: int) -> None:
        self.seen = 1000 * rank

    def state_dict(self) -> dict[str, int]:
        return {"seen": self.seen}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.seen = state["seen"]


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:24]


def tensor_digest(tensor: Tensor) -> str:
    local = tensor._local_tensor if isinstance(tensor, DTensor) else tensor
    plain = local.detach().clone().contiguous()  # memory that numpy has seen can not be resized any more
    return f"{plain.dtype} {tuple(plain.shape)} {digest(plain.numpy().tobytes())}"


def final_state(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, values: dict[str, Any], generator: torch.Generator
) -> dict[str, str]:
    """Everything that makes up this rank's state, bit for bit."""
    found = {f"parameter {name}": tensor_digest(parameter) for name, parameter in model.named_parameters()}
    found |= {f"buffer {name}": tensor_digest(buffer) for name, buffer in model.named_buffers()}
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state[parameter].items():
            found[f"optimizer {name} {key}"] = tensor_digest(value) if isinstance(value, Tensor) else repr(value)
    groups = [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
    found |= {"optimizer groups": repr(groups)}
    found |= {name: repr(thing.state_dict()) for name, thing in values.items()}
    found["random torch"] = tensor_digest(torch.get_rng_state())
    found["random python"] = digest(repr(random.getstate()).encode())
    state: Any = numpy.random.get_state(legacy=False)
    found["random numpy"] = digest(state["state"]["key"].tobytes() + repr(state["state"]["pos"]).encode())
    found["random generator"] = tensor_digest(generator.get_state())
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--mode", choices=sorted(MODES), required=True)
    parser.add_argument("--faults", default="")
    parser.add_argument("--corruption", default="")
    parser.add_argument("--data-workers", type=int, default=0)
    options = parser.parse_args()

    job = understudy.join()
    points = FaultPoints(options.out, options.faults, job.rank, lambda: job.committed)
    points.install()
    points.fire("set-up")
    newcomer = session.current is not None and session.current.assignment.newcomer
    if newcomer:
        points.fire("newcomer in its set-up")

    torch.manual_seed(1)
    parallel = MODES[options.mode](job.rank, job.world_size)
    model = parallel.model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    seed = 100 + parallel.data_rank
    torch.manual_seed(seed)
    random.seed(seed)
    numpy.random.seed(seed)
    generator = torch.Generator().manual_seed(seed)
    data = Noisy(points)
    sampler: DistributedSampler[Tensor] = DistributedSampler(data, num_replicas=parallel.data_size, rank=parallel.data_rank, shuffle=True)
    loader = DataLoader(data, batch_size=BATCH, sampler=sampler, num_workers=options.data_workers)
    counter = Counter(job.rank)
    job.register(model=model, optimizer=optimizer, scheduler=scheduler, loader=loader, counter=counter, generator=generator)
    corruption.install(options.corruption, options.out, optimizer, newcomer)
    held_out = torch.randn(64, WIDTH, generator=torch.Generator().manual_seed(6))
    optimizer.register_step_pre_hook(lambda *_: points.fire("after the vote, before optimizer.step"))

    @job.step
    def train(batch: Tensor) -> tuple[float, float]:
        optimizer.zero_grad()
        points.fire("forward")
        halves = batch.chunk(2)
        total = torch.zeros(())
        for number, half in enumerate(halves):
            parallel.hold_back(number + 1 < len(halves))
            loss = (model(half) - half).square().mean() / len(halves)
            if number + 1 == len(halves):
                points.backward()
            loss.backward()
            total += loss.detach()
        parallel.reduce()
        points.backward_done()
        parallel.clip()
        own = total.item()
        dist.all_reduce(total)
        points.fire("between backward and vote")
        counter.seen += len(batch) + int(torch.randint(3, (), generator=generator))
        optimizer.step()
        points.fire("after optimizer.step")
        scheduler.step()
        return total.item(), own

    @job.section
    def evaluate() -> float:
        model.eval()
        with torch.no_grad():
            chosen = held_out[torch.randint(len(held_out), (16,))]
            error = (model(chosen) - chosen).square().mean()
        work = dist.all_reduce(error, async_op=True)
        points.fire("collective of the evaluation")
        assert work is not None
        work.wait()
        points.fire("evaluation after its collective")
        model.train()
        result: float = error.item()
        return result

    with (options.out / f"log-{job.rank}.txt").open("a", buffering=1) as log:
        for batch in job.batches(loader, steps=STEPS):
            points.fire("between steps")
            everyone, own = train(batch)
            drawn = digest(batch.numpy().tobytes())
            line = {"step": job.committed, "loss": everyone.hex(), "own": own.hex(), "batch": drawn}
            log.write(json.dumps(line) + "\n")
            if job.committed % EVALUATE_EVERY == 0:
                points.fire("between step and evaluation")
                log.write(json.dumps({"evaluation": job.committed, "loss": evaluate().hex()}) + "\n")

    points.fire("after the loop")
    parallel.reshard()
    found = final_state(model, optimizer, {"scheduler": scheduler, "counter": counter}, generator)
    found["committed"] = str(job.committed)
    found["epoch of the data"] = str(sampler.epoch)
    found["next data"] = digest(repr([torch.rand(4).tolist(), list(iter(sampler))]).encode())
    partial = options.out / f"final-{job.rank}.{os.getpid()}"
    partial.write_text(json.dumps(found, indent=1))
    partial.rename(options.out / f"final-{job.rank}.json")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
