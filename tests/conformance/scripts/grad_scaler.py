"""float16 autocast with a GradScaler that starts too high: first steps are skipped, later ones let the scale grow."""

# group: precision
# expect: bitwise

from _common import DDP, join_seeded, mlp, nn, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 32, 1, nn.GELU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20, growth_interval=3)
job.register(model=model, optimizer=optimizer, scaler=scaler)
trace = start_trace(job)


@job.step
def train_step(step):
    inputs = torch.randn(8, 8)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.mse_loss(model(inputs).float(), inputs.sum(1, keepdim=True))
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    return loss.item()


for step in job.steps(14):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss, scale=scaler.get_scale())

trace.final(model=model, optimizer=optimizer, scaler=scaler)
