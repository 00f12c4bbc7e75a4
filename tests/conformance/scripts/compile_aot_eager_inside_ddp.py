"""A module under torch.compile(backend="aot_eager") inside DDP; evaluation takes the compiled module in eval mode."""

# group: precision
# expect: bitwise
# kills: backward@0:1 forward@4:2 vote agreement@6:0 evaluation@7:1 between@9:2
# limit: 300

from _common import DDP, dist, join_seeded, mlp, nn, start_trace, torch

job = join_seeded()
plain = mlp(8, 32, 1, nn.GELU)
model = DDP(torch.compile(plain, backend="aot_eager"))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(step):
    inputs = torch.randn(4, 8)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


@job.section
def evaluate():
    model.eval()
    with torch.no_grad():
        total = model(torch.ones(4, 8)).sum()
    model.train()
    dist.all_reduce(total)
    return total.item()


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)
    if job.committed % 4 == 0:
        trace.line(f"evaluation {job.committed}", total=evaluate())

trace.final(model=model, optimizer=optimizer)
