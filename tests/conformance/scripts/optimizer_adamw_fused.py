"""AdamW in its fused form, with the norm of the gradient clipped."""

# group: optimizers
# expect: bitwise

from _common import DDP, join_seeded, mlp, nn, random_dataset, sharded_loader, start_trace, torch

job = join_seeded()
model = DDP(mlp(16, 48, 1, nn.GELU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.95), fused=True)
data = random_dataset(96, 16, 1)
loader = sharded_loader(data, 4)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(batch):
    inputs, targets = batch
    loss = nn.functional.huber_loss(model(inputs), targets)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.item(), norm.item()


for batch in job.batches(loader, steps=12):
    loss, norm = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss, norm=norm)

trace.final(model=model, optimizer=optimizer)
