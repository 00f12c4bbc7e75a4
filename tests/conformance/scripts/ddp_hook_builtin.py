"""A communication hook of torch that is implemented in C++."""

# group: ddp
# expect: bitwise

from _common import DDP, dist, join_seeded, mlp, nn, random_dataset, sharded_loader, start_trace, torch

job = join_seeded()
net = mlp(8, 32, 1, nn.GELU)
model = DDP(net, bucket_cap_mb=0.0005)
model._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)
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
