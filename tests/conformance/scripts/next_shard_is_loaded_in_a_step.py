"""A custom loader walks through shards of 1.2 MB, and loads the next one in the step in which one ends: the number of the shard is carried
over; its content is too large, which is reported in that step.
"""

# group: data
# expect: told US1422 "loader.tokens"
# kills: forward@9:1 backward@14:0

import numpy
from _common import DDP, nn, start_trace, torch

import understudy

job = understudy.join()
SHARD, BATCH = 300_000, 8  # float32: 1.2 MB
AT = 6  # steps of the first shard


class Loader:
    def __init__(self):
        self.shard = -1
        self.advance()

    def advance(self):
        self.shard += 1
        self.tokens = numpy.random.default_rng(self.shard).standard_normal(SHARD, dtype=numpy.float32)
        self.position = job.rank * BATCH * 8
        self.left = AT if self.shard == 0 else 1000

    def next_batch(self):
        found = self.tokens[self.position : self.position + BATCH * 8].reshape(BATCH, 8)
        self.position += job.world_size * BATCH * 8
        self.left -= 1
        if self.left == 0:
            self.advance()
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


for step in job.steps(18):
    loss = iteration(step)
    trace.line(f"step {step}", loss=loss)
trace.final(model=model, optimizer=optimizer)
