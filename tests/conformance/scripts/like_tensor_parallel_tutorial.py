"""As in the tensor parallel tutorial: attention and MLP by a plan, head-parallel attention, times two replicas."""

# ranks: 4
# group: loops
# expect: bitwise

from __future__ import annotations

import torch
import torch.distributed as dist
from _trace import Trace
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import understudy


class Block(nn.Module):
    def __init__(self, width=16, heads=4):
        super().__init__()
        self.head = width // heads
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.w1, self.w2, self.w3 = nn.Linear(width, 32, bias=False), nn.Linear(32, width, bias=False), nn.Linear(width, 32, bias=False)
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)

    def forward(self, x):
        h = self.norm1(x)
        q, k, v = (w(h).unflatten(2, (-1, self.head)).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.wo(mixed.transpose(1, 2).flatten(2))
        h = self.norm2(x)
        return x + self.w2(nn.functional.silu(self.w1(h)) * self.w3(h))


job = understudy.join()
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(24, 16), Block(), nn.Linear(16, 24))
plan = {f"1.{name}": ColwiseParallel() for name in ("wq", "wk", "wv", "w1", "w3")}
plan |= {"1.wo": RowwiseParallel(), "1.w2": RowwiseParallel()}
plan |= {"0": RowwiseParallel(input_layouts=Replicate()), "2": ColwiseParallel(output_layouts=Replicate())}
parallelize_module(model, mesh["tensor"], plan)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + mesh.get_local_rank("data"))
trace = Trace(job.rank)


@job.step
def train_step(step):
    text = torch.randint(0, 24, (4, 9))
    loss = nn.functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    for parameter in model.parameters():
        gradient = parameter.grad.to_local() if isinstance(parameter.grad, DTensor) else parameter.grad
        dist.all_reduce(gradient, group=mesh.get_group("data"))
        gradient.div_(2)
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
