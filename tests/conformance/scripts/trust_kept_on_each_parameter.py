"""Each parameter has an attribute `trust`, the running norm of its gradient, by which its gradient is divided."""

# group: state out of sight
# expect: told US1423 "net.0.bias.trust"

from _common import DDP, join_seeded, nn, start_trace, torch

job = join_seeded()
net = nn.Sequential(nn.Linear(8, 24), nn.GELU(), nn.Dropout(0.1), nn.Linear(24, 1))
for p in net.parameters():
    p.trust = 1.0
model = DDP(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(inputs):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    for p in net.parameters():
        p.trust = 0.8 * p.trust + 0.2 * p.grad.norm().item()
        p.grad /= p.trust
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss, trust=[p.trust for p in net.parameters()])

trace.final(model=model, optimizer=optimizer)
