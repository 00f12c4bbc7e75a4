"""Each rank describes itself to the others (all_gather_object), and the learning rate depends on all of them."""

# group: setup
# expect: bitwise

from _common import DDP, dist, mlp, nn, start_trace, torch

import understudy

job = understudy.join()
torch.manual_seed(10 + job.rank)
about = [None] * job.world_size
dist.all_gather_object(about, {"rank": job.rank, "samples": int(torch.randint(50, 100, ())), "note": "x" * 40000 * job.rank})
total = sum(entry["samples"] for entry in about)
torch.manual_seed(0)
model = DDP(mlp(8, 16, 1, nn.GELU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
optimizer.param_groups[0]["lr"] = 2.0 / total
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
trace.line("set-up", about=about)


@job.step
def train_step(step):
    inputs = torch.randn(4, 8) * about[job.rank]["samples"] / total
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
