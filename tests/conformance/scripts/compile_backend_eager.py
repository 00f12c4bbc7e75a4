"""torch.compile(backend="eager") around a DDP module: Dynamo traces it in the first step."""

# group: precision
# expect: bitwise
# kills: backward@0:1 forward@4:2 vote agreement@6:0 between@9:2
# limit: 300

from _common import DDP, join_seeded, mlp, nn, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 32, 1, nn.GELU))
compiled = torch.compile(model, backend="eager")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(step):
    inputs = torch.randn(4 + step % 2, 8)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(compiled(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
