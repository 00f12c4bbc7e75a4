"""Encoder and decoder are two separate DDPs; one backward goes through both."""

# group: ddp
# expect: bitwise

import itertools

from _common import DDP, join_seeded, mlp, nn, sharded_loader, start_trace, torch
from torch.utils.data import TensorDataset

job = join_seeded()
encoder = DDP(mlp(12, 16, 6, nn.Tanh), bucket_cap_mb=0.0005)
decoder = DDP(nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 12)), bucket_cap_mb=0.0005)
optimizer = torch.optim.Adam(itertools.chain(encoder.parameters(), decoder.parameters()), lr=5e-3)
data = TensorDataset(torch.randn(96, 12))
loader = sharded_loader(data, 4)
job.register(encoder=encoder, decoder=decoder, optimizer=optimizer)
trace = start_trace(job)


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
