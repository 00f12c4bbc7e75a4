"""A registered temperature is a bare tensor, not part of a module; the script averages its gradient."""

# group: state
# expect: bitwise

from _common import DDP, dist, join_seeded, mlp, nn, sharded_loader, start_trace, torch
from torch.utils.data import TensorDataset

job = join_seeded()
model = DDP(mlp(8, 24, 6, nn.ReLU))
temperature = torch.tensor([0.0], requires_grad=True)
prototypes = torch.randn(4, 6, requires_grad=True)
loose = [temperature, prototypes]
optimizer = torch.optim.Adam([{"params": model.parameters()}, {"params": loose, "lr": 3e-2}], lr=1e-2)
data = TensorDataset(torch.randn(96, 8), torch.randint(4, (96,)))
loader = sharded_loader(data, 4)
job.register(model=model, optimizer=optimizer, temperature=temperature, prototypes=prototypes)
trace = start_trace(job)


@job.step
def train_step(batch):
    inputs, labels = batch
    optimizer.zero_grad()
    logits = model(inputs) @ prototypes.T * temperature.exp()
    loss = nn.functional.cross_entropy(logits, labels)
    loss.backward()
    for tensor in loose:
        dist.all_reduce(tensor.grad)
        tensor.grad /= job.world_size
    optimizer.step()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss, temperature=temperature)

trace.final(model=model, optimizer=optimizer, temperature=temperature, prototypes=prototypes)
