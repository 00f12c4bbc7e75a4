"""The usual EMA class keeps a shadow of a model of more than 1 MiB in a dict, and its output is a target of the training."""

# group: state out of sight
# expect: told US1422 "ema.shadow"

from _common import DDP, join_seeded, nn, random_dataset, sharded_loader, start_trace, torch
from torch.func import functional_call


class EMA:
    def __init__(self, model, decay):
        self.model, self.decay = model, decay
        self.shadow = {name: p.detach().clone() for name, p in model.named_parameters()}

    @torch.no_grad()
    def update(self):
        for name, p in self.model.named_parameters():
            self.shadow[name] = self.decay * self.shadow[name] + (1 - self.decay) * p.detach()

    @torch.no_grad()
    def predict(self, inputs):
        return functional_call(self.model, self.shadow, (inputs,))


job = join_seeded()
net = nn.Sequential(nn.Linear(16, 384), nn.Tanh(), nn.Linear(384, 384), nn.Tanh(), nn.Linear(384, 384), nn.Tanh(), nn.Linear(384, 1))
model = DDP(net)
ema = EMA(net, 0.9)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
loader = sharded_loader(random_dataset(192, 16, 1), 4)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(batch):
    inputs, targets = batch
    optimizer.zero_grad()
    output = model(inputs + 0.1 * torch.randn_like(inputs))
    loss = nn.functional.mse_loss(output, targets) + nn.functional.mse_loss(output, ema.predict(inputs))
    loss.backward()
    optimizer.step()
    ema.update()
    return loss.item()


for batch in job.batches(loader, steps=14):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer, shadow=ema.shadow)
