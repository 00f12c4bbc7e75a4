"""The training script of the fault tests: small, fast, and with everything in it that a recovery could get wrong.

    train.py --out FOLDER --mode ddp|buffers|hsdp|tp [--corruption KIND] [--steps N] [--data-workers N]
             [--stop FILE] [--pace SECONDS] [--states]

Each rank appends a line per step and per evaluation to FOLDER/log-RANK.txt, and writes its complete final state, as
digests by name, to FOLDER/final-RANK.json. Faults never change numbers, so a reference run is the same script
without faults. Ends after `--steps`, or when the file `--stop` appears: rank 0 sees it inside a step, and tells the others in that step.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy
import torch
import torch.distributed as dist
from tests.faults.jobs import corruption, fault_points
from tests.faults.jobs.networks import MODES, WIDTH
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.utils.data import DataLoader, Dataset, DistributedSampler, get_worker_info

import understudy
from understudy.worker.api import session
from understudy.worker.fault_injection.chaos import reach

STEPS = 24
EVALUATE_EVERY = 3
SAMPLES, BATCH = 192, 8


class Noisy(Dataset[Tensor]):
    """Samples with noise from every global random stream of the process that reads them."""

    def __init__(self) -> None:
        self._data = torch.randn(SAMPLES, WIDTH, generator=torch.Generator().manual_seed(5))
        self._served = 0

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Tensor:
        self._served += 1
        if get_worker_info() is None:
            if self._served % BATCH == 3:
                reach("data loader")
        elif self._served == BATCH + 3:  # `step` is the one at which this process was forked: an epoch's first one
            reach("process of the data loader")
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


class Log:
    """Whole lines, at once. While the disk is full they are kept: the training goes on, as a careful script's does."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._kept = b""

    def write(self, line: dict[str, Any]) -> None:
        self._kept += json.dumps(line).encode() + b"\n"
        with suppress(OSError):
            self._kept = self._kept[os.write(self._fd, self._kept) :]

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


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
    parser.add_argument("--corruption", default="")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--data-workers", type=int, default=0)
    parser.add_argument("--stop", type=Path)
    parser.add_argument("--pace", type=float, default=0.0, help="seconds to wait in each step")
    parser.add_argument("--states", action="store_true", help="a line of the log has the whole state after its step")
    options = parser.parse_args()

    job = understudy.join()
    fault_points.install(options.out, job.rank)
    backward = fault_points.Backward()
    reach("set-up")
    newcomer = session.current is not None and session.current.newcomer
    if newcomer:
        reach("newcomer in its set-up")

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
    data = Noisy()
    sampler: DistributedSampler[Tensor] = DistributedSampler(data, num_replicas=parallel.data_size, rank=parallel.data_rank, shuffle=True)
    loader = DataLoader(data, batch_size=BATCH, sampler=sampler, num_workers=options.data_workers)
    counter = Counter(job.rank)
    job.register(model=model, optimizer=optimizer, scheduler=scheduler, loader=loader, counter=counter, generator=generator)
    corruption.install(options.corruption, options.out, optimizer, newcomer)
    held_out = torch.randn(64, WIDTH, generator=torch.Generator().manual_seed(6))

    @job.step
    def train(batch: Tensor) -> tuple[float, float, bool]:
        optimizer.zero_grad()
        time.sleep(options.pace)  # the length of a step; nothing waits here
        halves = batch.chunk(2)
        total = torch.zeros(())
        for number, half in enumerate(halves):
            parallel.hold_back(number + 1 < len(halves))
            loss = (model(half) - half).square().mean() / len(halves)
            if number + 1 == len(halves):
                backward.begin()
            loss.backward()
            total += loss.detach()
        parallel.reduce()
        backward.done()
        parallel.clip()
        own = total.item()
        stops = job.rank == 0 and options.stop is not None and options.stop.exists()
        reported = torch.stack([total, torch.tensor(float(stops))])
        dist.all_reduce(reported)
        reach("between backward and vote")
        counter.seen += len(batch) + int(torch.randint(3, (), generator=generator))
        optimizer.step()
        scheduler.step()
        return reported[0].item(), own, bool(reported[1])

    @job.section
    def evaluate() -> float:
        model.eval()
        with torch.no_grad():
            chosen = held_out[torch.randint(len(held_out), (16,))]
            error = (model(chosen) - chosen).square().mean()
        work = dist.all_reduce(error, async_op=True)
        reach("collective of the evaluation")
        assert work is not None
        work.wait()
        reach("evaluation after its collective")
        model.train()
        result: float = error.item()
        return result

    def state() -> dict[str, str]:
        return final_state(model, optimizer, {"scheduler": scheduler, "counter": counter}, generator)

    with Log(options.out / f"log-{job.rank}.txt") as log:
        for batch in job.batches(loader, steps=options.steps):
            reach("between steps")
            everyone, own, last = train(batch)
            drawn = digest(batch.numpy().tobytes())
            line = {"step": job.committed, "loss": everyone.hex(), "own": own.hex(), "batch": drawn}
            if options.states:
                parallel.reshard()
                line |= {"state": digest(json.dumps(state(), sort_keys=True).encode()), "by": f"{os.uname().nodename} {os.getpid()}"}
            log.write(line)
            if job.committed % EVALUATE_EVERY == 0:
                reach("between step and evaluation")
                log.write({"evaluation": job.committed, "loss": evaluate().hex()})
            if last:
                break

    reach("after the loop")
    parallel.reshard()
    found = state()
    found["committed"] = str(job.committed)
    found["epoch of the data"] = str(sampler.epoch)
    found["next data"] = digest(repr([torch.rand(4).tolist(), list(iter(sampler))]).encode())
    partial = options.out / f"final-{job.rank}.{os.getpid()}"
    partial.write_text(json.dumps(found, indent=1))
    partial.rename(options.out / f"final-{job.rank}.json")
    dist.destroy_process_group()
    if "UNDERSTUDY_RUN_DIR" not in os.environ:
        # Whoever frees the last reference to a group holds the interpreter's lock and waits for Gloo's threads, one of which may want that
        # lock to free a tensor (torch 2.13). Understudy's workers keep their groups.
        os._exit(0)


if __name__ == "__main__":
    main()
