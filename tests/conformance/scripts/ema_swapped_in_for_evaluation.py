"""An average of the weights is swapped into the model for each evaluation and out again, inside the section."""

# group: state
# expect: bitwise

from _common import DDP, dist, join_seeded, mlp, nn, random_dataset, sharded_loader, start_trace, torch


class Average:
    def __init__(self, module, decay):
        self.module = module
        self.decay = decay
        self.shadow = [p.detach().clone() for p in module.parameters()]

    @torch.no_grad()
    def update(self):
        for shadow, parameter in zip(self.shadow, self.module.parameters(), strict=True):
            shadow.lerp_(parameter, 1 - self.decay)

    @torch.no_grad()
    def swap(self):
        for shadow, parameter in zip(self.shadow, self.module.parameters(), strict=True):
            kept = parameter.clone()
            parameter.copy_(shadow)
            shadow.copy_(kept)


job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
average = Average(model, 0.8)
data = random_dataset(96, 8, 1)
held_out = torch.randn(12, 8), torch.randn(12, 1)
loader = sharded_loader(data, 4)
job.register(model=model, optimizer=optimizer, shadow=average.shadow)
trace = start_trace(job)


@job.step
def train_step(batch):
    inputs, targets = batch
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    average.update()
    return loss.item()


@job.section
def evaluate():
    average.swap()
    model.eval()
    with torch.no_grad():
        loss = nn.functional.mse_loss(model(held_out[0][job.rank :: 3]), held_out[1][job.rank :: 3])
    dist.all_reduce(loss)
    model.train()
    average.swap()
    return loss.item() / job.world_size


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)
    if job.committed % 3 == 0:
        trace.line(f"evaluation {job.committed}", loss=evaluate())

trace.final(model=model, optimizer=optimizer, shadow=average.shadow)
