"""The step gets its number from an itertools.count, for the annealed weight of a KL term."""

# group: unregistered state
# expect: told US1401 "ticks"

import itertools

from _common import DDP, join_seeded, nn, start_trace, torch


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(8, 6), nn.Linear(3, 8)

    def forward(self, inputs):
        mean, log_variance = self.encoder(inputs).chunk(2, 1)
        code = mean + (0.5 * log_variance).exp() * torch.randn_like(mean)
        return self.decoder(code), mean, log_variance


job = join_seeded()
model = DDP(Autoencoder())
optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
ticks = itertools.count()


@job.step
def train_step(inputs):
    weight = min(1.0, next(ticks) / 10)
    optimizer.zero_grad()
    output, mean, log_variance = model(inputs)
    divergence = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(1).mean()
    loss = nn.functional.mse_loss(output, inputs) + weight * divergence
    loss.backward()
    optimizer.step()
    return loss.item(), weight


for step in job.steps(12):
    loss, weight = train_step(torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss, weight=weight)

trace.final(model=model, optimizer=optimizer)
