"""Gradients are averaged in two levels through new_group: within pairs, then between the pairs' leaders, then back."""

# ranks: 4
# group: parallel
# expect: bitwise

from _common import dist, mlp, nn, start_trace, torch

import understudy

job = understudy.join()
pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
leaders = dist.new_group([0, 2])
pair, leader = pairs[job.rank // 2], job.rank // 2 * 2
torch.manual_seed(0)
model = mlp(8, 32, 1, nn.GELU)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(step):
    inputs = torch.randn(4, 8)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    flat = nn.utils.parameters_to_vector(parameter.grad for parameter in model.parameters())
    dist.reduce(flat, leader, group=pair)
    if job.rank == leader:
        dist.all_reduce(flat, group=leaders)
        flat /= job.world_size
    dist.broadcast(flat, leader, group=pair)
    nn.utils.vector_to_parameters(flat, [parameter.grad for parameter in model.parameters()])
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
