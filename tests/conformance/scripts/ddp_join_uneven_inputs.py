"""DDP's join for uneven inputs: ranks without batches take part in the others' collectives."""

# ranks: 2
# group: ddp
# expect: refused US4791

from _common import DDP, join_seeded, nn, start_trace, torch

job = join_seeded()
model = DDP(nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step():
    optimizer.zero_grad()
    loss = model(torch.randn(6, 8)).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()


with model.join():
    for step in job.steps(6 + job.rank):
        trace.line(f"step {step}", loss=train_step())

trace.final(model=model, optimizer=optimizer)
