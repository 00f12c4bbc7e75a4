"""A custom loader with small shards: the first one ends inside a step that is interrupted, in which the number of the shard
and its content change for the first time, long after the position in it.
"""

# group: data
# expect: bitwise
# kills: forward@5:1 backward@11:0 vote@17:2 between@19:1 forward@20:0

import numpy
from _common import DDP, nn, start_trace, torch

import understudy

job = understudy.join()
BATCH, EACH = 8, 6  # batches in a shard


class Loader:
    def __init__(self):
        self.reset(0)

    def reset(self, shard):
        self.shard = shard
        self.tokens = numpy.random.default_rng(shard).standard_normal(BATCH * 8 * EACH * job.world_size, dtype=numpy.float32)
        self.position = job.rank * BATCH * 8

    def next_batch(self):
        found = self.tokens[self.position : self.position + BATCH * 8].reshape(BATCH, 8)
        self.position += job.world_size * BATCH * 8
        if self.position >= len(self.tokens):
            self.reset(self.shard + 1)
        return torch.from_numpy(found.copy())


torch.manual_seed(0)
model = DDP(nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
loader = Loader()


@job.step
def iteration(step):
    inputs = loader.next_batch()
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(24):
    loss = iteration(step)
    trace.line(f"step {step}", loss=loss, shard=loader.shard)
trace.final(model=model, optimizer=optimizer, loader=[loader.shard, loader.position, loader.tokens])
