"""As in the FSDP2 tutorial: a transformer created on meta, sharded by layer, then materialized; prefetching and clipping."""

# ranks: 4
# group: loops
# expect: bitwise

from __future__ import annotations

import torch
from _trace import Trace
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import distribute_tensor

import understudy


class Transformer(nn.Module):
    def __init__(self, vocabulary=24, width=16, layers=3, length=8):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(width, 2, 2 * width, 0.1, batch_first=True) for _ in range(layers))
        self.output = nn.Linear(width, vocabulary, bias=False)

    def forward(self, text):
        x = self.tokens(text) + self.places.weight[: text.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.output(x)


job = understudy.join()
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
with torch.device("meta"):
    model = Transformer()
for layer in model.layers:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
model.to_empty(device="cpu")
torch.manual_seed(0)
with torch.no_grad():
    for name, parameter in model.named_parameters():
        whole = torch.ones(parameter.shape) if "norm" in name and "weight" in name else 0.1 * torch.randn(parameter.shape)
        parameter.copy_(distribute_tensor(whole, parameter.device_mesh, parameter.placements, src_data_rank=None))
for layer, following in zip(model.layers, model.layers[1:], strict=False):
    layer.set_modules_to_forward_prefetch([following])
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(step):
    model.unshard()
    text = torch.randint(0, 24, (4, 9))
    loss = nn.functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
