"""HSDP with fully_shard on each block and on the root, as the tutorial wraps a transformer."""

# ranks: 4
# group: fsdp
# expect: bitwise

from _common import nn, square_mesh, start_trace, torch
from torch.distributed.fsdp import fully_shard

import understudy

job = understudy.join()
mesh = square_mesh("replicate", "shard")


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 2, dropout=0.1, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Dropout(0.1), nn.Linear(2 * width, width))

    def forward(self, x):
        normed = self.norm(x)
        x = x + self.attention(normed, normed, normed, need_weights=False)[0]
        return x + self.mlp(x)


torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(20, 16), Block(16), Block(16), nn.Linear(16, 20))
for block in model[1:3]:
    fully_shard(block, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(step):
    text = torch.randint(0, 20, (4, 9))
    logits = model(text[:, :-1])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
