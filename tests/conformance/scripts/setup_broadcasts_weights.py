"""Every rank initializes its own weights, then rank 0's are broadcast one by one before DDP is created."""

# group: setup
# expect: bitwise

from _common import DDP, dist, mlp, nn, start_trace, torch

import understudy

job = understudy.join()
torch.manual_seed(100 + job.rank)
net = mlp(8, 16, 1, nn.GELU)
for tensor in net.state_dict().values():
    dist.broadcast(tensor, src=0)
dist.barrier()
model = DDP(net)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
trace.line("set-up", weights=net.state_dict())


@job.step
def train_step(step):
    inputs = torch.randn(4, 8)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
