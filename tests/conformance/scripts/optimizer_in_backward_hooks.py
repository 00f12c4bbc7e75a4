"""One optimizer for each parameter, stepped by a hook during backward as soon as its gradient is there and averaged."""

# ranks: 3
# group: optimizers
# expect: refused "collectives after its vote"

from __future__ import annotations

import torch
import torch.distributed as dist
from _trace import Trace
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import understudy

job = understudy.join()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 1))
optimizers = {name: torch.optim.AdamW([p], lr=1e-2) for name, p in model.named_parameters()}
by_parameter = {p: optimizers[name] for name, p in model.named_parameters()}


def step_now(parameter):
    dist.all_reduce(parameter.grad)
    parameter.grad /= job.world_size
    by_parameter[parameter].step()
    parameter.grad = None


for parameter in model.parameters():
    parameter.register_post_accumulate_grad_hook(step_now)

data = TensorDataset(torch.randn(96, 8), torch.randn(96, 1))
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
job.register(model=model, optimizers=optimizers)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(batch):
    inputs, targets = batch
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, **optimizers)
