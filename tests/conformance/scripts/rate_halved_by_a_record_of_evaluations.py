"""The best evaluation and the bad ones since are in a dict; at the second bad one the script halves the rate in the groups."""

# group: unregistered state
# expect: bitwise

from _common import DDP, dist, join_seeded, mlp, nn, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.GELU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
held_out = torch.randn(30, 8)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
record = {"best": float("inf"), "bad": 0, "at": 0}


@job.step
def train_step(inputs):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


@job.section
@torch.no_grad()
def evaluate():
    model.eval()
    inputs = held_out[job.rank :: job.world_size]
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    model.train()
    dist.all_reduce(loss)
    return loss.item() / job.world_size


for step in job.steps(14):
    loss = train_step(torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss)
    if step % 2 == 0:
        found = evaluate()
        if found < 0.8 * record["best"]:
            record.update(best=found, bad=0, at=step)
        else:
            record["bad"] += 1
        if record["bad"] == 2:
            record["bad"] = 0
            for group in optimizer.param_groups:
                group["lr"] /= 2
        trace.line(f"evaluation {step}", loss=found, record=record, rate=optimizer.param_groups[0]["lr"])

trace.final(model=model, optimizer=optimizer, record=record)
