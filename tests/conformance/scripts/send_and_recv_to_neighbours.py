"""Gossip: in each step one pair exchanges by send and recv what the third rank gets by a broadcast; DDP trains on it."""

# group: parallel
# expect: bitwise

from _common import DDP, dist, join_seeded, mlp, nn, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 16, 1, nn.ReLU))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(step):
    giver = step % job.world_size
    taker = (giver + 1) % job.world_size
    noise = torch.randn(4, 8)
    if job.rank == giver:
        dist.send(noise, taker, tag=step)
    elif job.rank == taker:
        theirs = torch.empty(4, 8)
        dist.recv(theirs, giver, tag=step)
        noise = (noise + theirs) / 2
    shared = noise.clone()
    dist.broadcast(shared, taker)
    inputs = noise + 0.1 * shared
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
