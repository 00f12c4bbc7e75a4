"""Only rank 0 evaluates, through the DDP module in eval mode, before the first step and between steps (nanoGPT)."""

# group: ddp
# expect: told US1131

from _common import DDP, join_seeded, mlp, nn, random_dataset, sharded_loader, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 16, 1, nn.GELU))
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


@torch.no_grad()
def evaluate():
    model.eval()
    loss = nn.functional.mse_loss(model(data.tensors[0]), data.tensors[1]).item()
    model.train()
    return loss


for batch in job.batches(loader, steps=12):
    if job.committed % 3 == 0 and job.rank == 0:
        trace.line(f"evaluation {job.committed}", loss=evaluate())
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer)
