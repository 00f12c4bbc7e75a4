"""DDP over several hosts; one rank stops in the middle of a step, for a test to do something to its host.

HELD names ranks and steps, as 1:6,1:8. Such a rank writes the marker "held" with the step's number and waits for the file "let go", once: a
worker that takes the rank over does not wait. With EACH the file's name ends with the step. Near the end all wait for the file "end", if
WAIT is set.

PHASES names places in the recoveries that follow, and steps, as survivor:6,setup:8,apply:10,redo:12. There a marker of that name is
written and the file "go on" with that name waited for: by rank 0 before it can stop, by the newcomer in its set-up, while it
takes over values, and while it does the step again. "next attempt" is where rank 1, a survivor, does it again.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from support import Counter, final, first_time, folder, log, seed, wait_for_file  # type: ignore[import-not-found]
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy

STEPS = 16
held = os.environ.get("HELD", "").split(",")
phases = dict(part.split(":") for part in os.environ.get("PHASES", "").split(",") if part)


def hold(phase: str) -> None:
    """Waits if this is the phase that the step which was held last calls for."""
    step = phases.get(phase, "")
    if step and (folder / f"marker held {step}").exists() and first_time(phase):
        wait_for_file(f"go on {phase}")


class SlowCounter(Counter):  # type: ignore[misc]
    def load_state_dict(self, state: dict[str, Any]) -> None:
        hold("apply")
        super().load_state_dict(state)


job = understudy.join()
seed(3)
model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.Dropout(0.2), nn.Linear(64, 16)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
counter = SlowCounter()
hold("setup")
job.register(model=model, optimizer=optimizer, counter=counter)
seed(100 + job.rank)


@job.step
def train() -> torch.Tensor:
    optimizer.zero_grad()
    loss: torch.Tensor = model(torch.randn(8, 16)).square().mean()
    if f"{job.rank}:{job.committed}" in held and first_time(f"held {job.committed}"):
        wait_for_file(f"let go {job.committed}" if "EACH" in os.environ else "let go")
    if job.rank == 0 and phases.get("survivor") == str(job.committed) and first_time("survivor"):
        wait_for_file("go on survivor")
    if job.rank == 1 and phases.get("redo") == str(job.committed):
        hold("redo")
    if job.rank == 1 and phases.get("next attempt") == str(job.committed) and job.generation > 0:
        hold("next attempt")
    loss.backward()  # type: ignore[no-untyped-call]
    counter.count += job.rank
    optimizer.step()
    return loss.detach()


for number in job.steps(STEPS):
    if number == STEPS - 2 and "WAIT" in os.environ:
        wait_for_file("end")
    log(job, "loss", train())
    (folder / f"marker step {job.committed} on {job.rank} in generation {job.generation}").touch()
final(job, model=model, optimizer=optimizer, counter=counter)
