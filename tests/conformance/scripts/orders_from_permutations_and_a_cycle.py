"""The order of the patches is the next of itertools.permutations, and the rotation the next of an itertools.cycle over a product."""

# group: state out of sight
# expect: told US1423 "jigsaw.orders"

import itertools

from _common import DDP, join_seeded, mlp, nn, start_trace, torch


class Jigsaw:
    def __init__(self):
        self.orders = itertools.permutations(range(4))
        self.flips = itertools.cycle(itertools.product((1.0, -1.0), (0.5, 1.0, 2.0)))

    def __call__(self, inputs):
        order = next(self.orders)
        sign, scale = next(self.flips)
        patches = inputs.view(-1, 4, 2)[:, list(order)] * sign * scale
        return patches.flatten(1)


job = join_seeded()
model = DDP(mlp(8, 24, 8, nn.GELU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
jigsaw = Jigsaw()


@job.step
def train_step(inputs):
    puzzle = jigsaw(inputs)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(puzzle), inputs)
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(14):
    loss = train_step(torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
