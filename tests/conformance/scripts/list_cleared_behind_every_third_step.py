"""Before their votes steps add to a list on which they depend; the loop clears it after every third step."""

# group: reported by users
# expect: bitwise

from _common import DDP, join_seeded, mlp, nn, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
recent = []


@job.step
def train_step(inputs):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    recent.append(loss.item())
    (loss * (1 + 0.01 * len(recent))).backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss, recent=recent)
    if step % 3 == 2:
        recent.clear()

trace.final(model=model, optimizer=optimizer)
