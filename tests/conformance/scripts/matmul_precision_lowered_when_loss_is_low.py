"""torch.set_float32_matmul_precision holds the precision of training: once the loss is low, inputs are rounded to bf16."""

# group: state out of sight
# expect: bitwise

from _common import DDP, dist, join_seeded, mlp, nn, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


def prepared(inputs):
    return inputs.bfloat16().float() if torch.get_float32_matmul_precision() == "medium" else inputs


@job.step
def train_step(inputs):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(prepared(inputs)), inputs.sum(1, keepdim=True))
    loss.backward()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    optimizer.step()
    return mean.item() / job.world_size


for step in job.steps(14):
    loss = train_step(torch.randn(4, 8))
    if loss < 7:
        torch.set_float32_matmul_precision("medium")
    trace.line(f"step {step}", loss=loss, precision=torch.get_float32_matmul_precision())

trace.final(model=model, optimizer=optimizer)
