"""Blocks go around a ring with batch_isend_irecv, as in ring attention, and gradients meet by an all_reduce."""

# group: parallel
# expect: bitwise

from _common import dist, nn, start_trace, torch

import understudy

job = understudy.join()
after, before = (job.rank + 1) % job.world_size, (job.rank - 1) % job.world_size
torch.manual_seed(0)
model = nn.ModuleDict({"query": nn.Linear(8, 16), "key": nn.Linear(8, 16), "out": nn.Linear(8, 8)})
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


def around(block):
    received = torch.empty_like(block)
    operations = [dist.P2POp(dist.isend, block.contiguous(), after), dist.P2POp(dist.irecv, received, before)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    return received


@job.step
def train_step(step):
    inputs = torch.randn(6, 8)
    query, block, scores, values = model["query"](inputs), inputs, [], []
    for turn in range(job.world_size):
        if turn:
            block = around(block)
        scores.append(query @ model["key"](block).T / 4)
        values.append(block)
    mixed = torch.cat(scores, 1).softmax(1) @ torch.cat(values)
    loss = nn.functional.mse_loss(model["out"](mixed), inputs.roll(1, 0))
    optimizer.zero_grad()
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad, op=dist.ReduceOp.SUM)
        parameter.grad.div_(job.world_size)
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
