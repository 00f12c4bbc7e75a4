"""An optimizer of the script's own scales gradients by an attribute that shrinks in each step and is in no state_dict."""

# group: reported by users
# expect: bitwise

from _common import DDP, join_seeded, mlp, nn, random_dataset, sharded_loader, start_trace, torch


class Scaled(torch.optim.SGD):
    def __init__(self, parameters, **options):
        super().__init__(parameters, **options)
        self.scale = 1.0
        self.average = None

    @torch.no_grad()
    def step(self, closure=None):
        self.scale *= 0.9
        norm = torch.stack([p.grad.norm() for group in self.param_groups for p in group["params"]]).norm()
        self.average = norm if self.average is None else 0.8 * self.average + 0.2 * norm
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad *= self.scale / (1 + self.average)
        return super().step(closure)


job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.Tanh))
optimizer = Scaled(model.parameters(), lr=0.1, momentum=0.9)
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
    trace.line(f"step {job.committed}", loss=loss, scale=optimizer.scale)

trace.final(model=model, optimizer=optimizer, scale=optimizer.scale, average=optimizer.average)
