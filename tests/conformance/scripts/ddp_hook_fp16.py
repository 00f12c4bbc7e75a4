"""A communication hook of torch in Python: gradients travel as 16-bit floats."""

# group: ddp
# expect: bitwise

from _common import DDP, join_seeded, mlp, nn, random_dataset, sharded_loader, start_trace, torch
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

job = join_seeded()
net = mlp(8, 32, 1, nn.GELU)
model = DDP(net, bucket_cap_mb=0.0005)
model.register_comm_hook(state=None, hook=fp16_compress_hook)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = random_dataset(96, 8, 1)
loader = sharded_loader(data, 4)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(batch):
    inputs, targets = batch
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer)
