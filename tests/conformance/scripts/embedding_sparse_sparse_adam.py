"""An embedding with sparse gradients, trained with SparseAdam."""

# ranks: 2
# group: precision
# expect: refused US1224

from _common import DDP, join_seeded, nn, start_trace, torch

job = join_seeded()
model = DDP(nn.Embedding(50, 4, sparse=True))
optimizer = torch.optim.SparseAdam(model.parameters(), lr=0.05)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step():
    optimizer.zero_grad()
    loss = model(torch.randint(0, 50, (6,))).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(6):
    trace.line(f"step {step}", loss=train_step())

trace.final(model=model, optimizer=optimizer)
