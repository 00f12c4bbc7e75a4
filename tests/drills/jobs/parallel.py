"""Eight ranks, all forms of parallelism at once: data x pipeline x tensor, 2 x 2 x 2. Each stage's matrices are split over two ranks.

    parallel.py FOLDER [--steps N]

Ends after `--steps`, or when the file FOLDER/stop appears. Each rank leaves FOLDER/final-RANK.json, as `benchmarks/soak_job.py` does.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import understudy

WIDTH, BATCH, PARTS = 16, 8, 4


def local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def digest(tensor: torch.Tensor) -> str:
    plain = local(tensor.detach()).contiguous()
    return f"{plain.dtype} {tuple(plain.shape)} {hashlib.sha256(plain.numpy().tobytes()).hexdigest()}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=1 << 40)
    args = parser.parse_args()

    job = understudy.join()
    mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("data", "pipeline", "tensor"))
    index, copy = mesh.get_local_rank("pipeline"), mesh.get_local_rank("data")
    torch.manual_seed(1 + index)
    part = nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, WIDTH), nn.Dropout(0.1))
    parallelize_module(part, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    stage = PipelineStage(part, index, 2, torch.device("cpu"), group=mesh.get_group("pipeline"))
    schedule = Schedule1F1B(stage, n_microbatches=PARTS, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.AdamW(part.parameters(), lr=1e-2, foreach=False)
    job.register(part=part, optimizer=optimizer)
    torch.manual_seed(10 + 2 * copy + index)  # ranks that share matrices draw the same dropout
    replicas = mesh.get_group("data")

    @job.step
    def train(step: int) -> bool:
        optimizer.zero_grad()
        made = torch.Generator().manual_seed(100 * step + copy)
        inputs, targets = torch.randn(BATCH, WIDTH, generator=made), torch.randn(BATCH, WIDTH, generator=made)
        schedule.step(*([inputs] if stage.is_first else []), target=targets if stage.is_last else None)
        for parameter in part.parameters():
            assert parameter.grad is not None
            gradient = local(parameter.grad)
            dist.all_reduce(gradient, group=replicas)
            gradient.div_(2)
        ends = torch.tensor(float(job.rank == 0 and (args.folder / "stop").exists()))
        dist.all_reduce(ends)
        optimizer.step()
        return bool(ends)

    for step in job.steps(args.steps):
        if train(step):
            break

    found = {name: digest(tensor) for name, tensor in part.state_dict().items()}
    for name, parameter in part.named_parameters():
        for key, value in optimizer.state[parameter].items():
            found[f"{name} {key}"] = digest(value)
    found |= {"random": digest(torch.get_rng_state()), "committed": str(job.committed)}
    partial = args.folder / f"final-{job.rank}.{os.getpid()}"
    partial.write_text(json.dumps(found, indent=1))
    partial.rename(args.folder / f"final-{job.rank}.json")
    dist.destroy_process_group()
    if "UNDERSTUDY_RUN_DIR" not in os.environ:
        os._exit(0)  # as in soak_job.py


if __name__ == "__main__":
    main()
