"""The training of the soak: small, fast, with dropout, buffers, a custom moment and rank-local random streams.

    soak_job.py FOLDER [--steps N] [--pace SECONDS]

Ends after `--steps`, or when the file FOLDER/stop appears: rank 0 sees it inside a step, and notifies the others in that step, so that all
end with the same one. Each rank leaves FOLDER/final-RANK.json, digests of all its state by name; the loss of every step is part of it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy

WIDTH, BATCH = 64, 8


class Trace:
    """A digest over the losses of all steps so far, including this rank's."""

    def __init__(self) -> None:
        self.digest = ""

    def add(self, *values: float) -> None:
        text = " ".join([self.digest, *(value.hex() for value in values)])
        self.digest = hashlib.sha256(text.encode()).hexdigest()

    def state_dict(self) -> dict[str, str]:
        return {"digest": self.digest}

    def load_state_dict(self, state: dict[str, str]) -> None:
        self.digest = state["digest"]


def digest(tensor: torch.Tensor) -> str:
    plain = tensor.detach().contiguous()
    return f"{plain.dtype} {tuple(plain.shape)} {hashlib.sha256(plain.numpy().tobytes()).hexdigest()}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=1 << 40)
    parser.add_argument("--pace", type=float, default=0.0, help="seconds to wait in each step")
    args = parser.parse_args()

    job = understudy.join()
    torch.manual_seed(1)
    model = DistributedDataParallel(
        nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.GELU(), nn.Dropout(0.2), nn.Linear(WIDTH, WIDTH))
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    trace = Trace()
    job.register(model=model, optimizer=optimizer, trace=trace)
    torch.manual_seed(100 + job.rank)

    @job.step
    def train() -> bool:
        optimizer.zero_grad()
        batch = torch.randn(BATCH, WIDTH)
        loss = (model(batch) - batch).square().mean()
        loss.backward()
        time.sleep(args.pace)
        told = torch.tensor([loss.item(), float(job.rank == 0 and (args.folder / "stop").exists())])
        dist.all_reduce(told)
        trace.add(loss.item(), told[0].item())
        optimizer.step()
        return bool(told[1])

    for _ in job.steps(args.steps):
        if train():
            break

    found = {name: digest(tensor) for name, tensor in model.state_dict().items()}
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state[parameter].items():
            found[f"{name} {key}"] = digest(value)
    found |= {"losses": trace.digest, "random": digest(torch.get_rng_state()), "committed": str(job.committed)}
    partial = args.folder / f"final-{job.rank}.{os.getpid()}"
    partial.write_text(json.dumps(found, indent=1))
    partial.rename(args.folder / f"final-{job.rank}.json")
    dist.destroy_process_group()
    if "UNDERSTUDY_RUN_DIR" not in os.environ:
        # The thread that frees the last reference to a group holds the interpreter's lock and waits for Gloo's threads, one of which may
        # want that
        # lock to free a tensor (torch 2.13). Understudy's workers keep their groups.
        os._exit(0)


if __name__ == "__main__":
    main()
