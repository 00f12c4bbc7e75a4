"""PowerSGD: gradients as products of thin matrices; the hook's state carries the error over to the next step."""

# group: ddp
# expect: refused US4793

from _common import DDP, join_seeded, nn, random_dataset, sharded_loader, start_trace, torch
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

job = join_seeded()
net = nn.Sequential(nn.Linear(16, 48), nn.GELU(), nn.Dropout(0.1), nn.Linear(48, 48), nn.GELU(), nn.Linear(48, 1))
model = DDP(net)
compression = powerSGD_hook.PowerSGDState(process_group=None, matrix_approximation_rank=1, start_powerSGD_iter=4)
model.register_comm_hook(compression, powerSGD_hook.powerSGD_hook)
optimizer = torch.optim.SGD(model.parameters(), lr=5e-2, momentum=0.9)
data = random_dataset(96, 16, 1)
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
