"""A hand-written pipeline of two stages with send and recv, times two replicas."""

# ranks: 4
# group: parallel
# expect: bitwise

from _common import dist, nn, start_trace, torch

import understudy

job = understudy.join()
number, copy = divmod(job.rank, 2)
peer = (1 - number) * 2 + copy
groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
torch.manual_seed(number)
model = nn.Sequential(nn.Linear(8, 24), nn.GELU(), nn.Dropout(0.1)) if number == 0 else nn.Linear(24, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(step):
    inputs = torch.randn(6, 8, generator=torch.Generator().manual_seed(100 * step + copy))
    optimizer.zero_grad()
    loss = torch.zeros(())
    if number == 0:
        hidden = model(inputs)
        dist.send(hidden.detach(), peer)
        gradient = torch.empty_like(hidden)
        dist.recv(gradient, peer)
        hidden.backward(gradient)
    else:
        hidden = torch.empty(6, 24)
        dist.recv(hidden, peer)
        hidden.requires_grad_()
        loss = nn.functional.mse_loss(model(hidden), inputs.sum(1, keepdim=True))
        loss.backward()
        dist.send(hidden.grad, peer)
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad, group=groups[number])
        parameter.grad.div_(2)
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
