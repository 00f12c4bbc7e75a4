"""Each step gathers a small dict from every rank (all_gather_object) and scales the loss by what the others have seen."""

# group: parallel
# expect: bitwise

from _common import DDP, dist, join_seeded, mlp, nn, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 16, 1, nn.GELU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(step):
    count = int(torch.randint(2, 9, ()))
    inputs = torch.randn(count, 8)
    seen = [None] * job.world_size
    dist.all_gather_object(seen, {"rank": job.rank, "count": count, "note": "x" * (step * 7 % 5)})
    total = sum(entry["count"] for entry in seen)
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True), reduction="sum") * job.world_size / total
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item(), total


for step in job.steps(12):
    loss, total = train_step(step)
    trace.line(f"step {step}", loss=loss, total=total)

trace.final(model=model, optimizer=optimizer)
