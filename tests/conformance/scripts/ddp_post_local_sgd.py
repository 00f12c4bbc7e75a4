"""Post-local SGD: from step 5 on gradients are averaged in pairs of ranks, and the pairs' parameters every third step."""

# ranks: 4
# group: ddp
# expect: refused US4793

from _common import DDP, dist, join_seeded, mlp, nn, start_trace, torch
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook

job = join_seeded()
pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
model = DDP(mlp(8, 24, 1, nn.ReLU))
model.register_comm_hook(PostLocalSGDState(None, pairs[job.rank // 2], start_localSGD_iter=5), post_localSGD_hook)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
samples, wanted = torch.randn(96, 8), torch.randn(96, 1)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step():
    chosen = torch.randint(len(samples), (4,))
    inputs, targets = samples[chosen], wanted[chosen]
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


@job.step
def average_parameters():
    for parameter in model.parameters():
        dist.all_reduce(parameter.data)
        parameter.data /= job.world_size


for number in job.steps(12):
    loss = train_step()
    trace.line(f"step {number}", loss=loss)
    if number >= 5 and number % 3 == 2:
        average_parameters()

trace.final(model=model, optimizer=optimizer)
