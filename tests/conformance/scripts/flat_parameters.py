"""The optimizer steps flat copies in float32 that belong to no module."""

# group: reported by users
# expect: refused US1226

from _common import DDP, join_seeded, mlp, nn, start_trace, torch

job = join_seeded()
net = mlp(8, 24, 1, nn.ReLU).to(torch.bfloat16)
model = DDP(net)
masters = [parameter.detach().float().clone().requires_grad_() for parameter in net.parameters()]
optimizer = torch.optim.AdamW(masters, lr=1e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(inputs):
    net.zero_grad()
    loss = nn.functional.mse_loss(model(inputs.bfloat16()).float(), inputs.sum(1, keepdim=True))
    loss.backward()
    for master, parameter in zip(masters, net.parameters(), strict=True):
        master.grad = parameter.grad.float()
    optimizer.step()
    with torch.no_grad():
        for master, parameter in zip(masters, net.parameters(), strict=True):
            parameter.copy_(master)
    return loss.item()


for step in job.steps(12):
    loss = train_step(torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
