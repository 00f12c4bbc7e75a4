"""Encoder and decoder are wrapped each on its own; one backward goes through both."""

# ranks: 3
# group: ddp
# expect: bitwise

from __future__ import annotations

import itertools

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import understudy

job = understudy.join()
torch.manual_seed(0)
encoder = DistributedDataParallel(nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Dropout(0.1), nn.Linear(16, 6)), bucket_cap_mb=0.0005)
decoder = DistributedDataParallel(nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 12)), bucket_cap_mb=0.0005)
optimizer = torch.optim.Adam(itertools.chain(encoder.parameters(), decoder.parameters()), lr=5e-3)
data = TensorDataset(torch.randn(96, 12))
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
job.register(encoder=encoder, decoder=decoder, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(inputs):
    optimizer.zero_grad()
    mean, spread = encoder(inputs).chunk(2, dim=1)
    code = mean + torch.randn_like(mean) * torch.exp(spread / 2)
    again = decoder(code)
    divergence = 0.5 * (mean.square() + spread.exp() - 1 - spread).sum(1).mean()
    loss = nn.functional.mse_loss(again, inputs) + 0.01 * divergence
    loss.backward()
    optimizer.step()
    return loss.item(), divergence.item()


for (inputs,) in job.batches(loader, steps=12):
    loss, divergence = train_step(inputs)
    trace.line(f"step {job.committed}", loss=loss, divergence=divergence)

trace.final(encoder=encoder, decoder=decoder, optimizer=optimizer)
