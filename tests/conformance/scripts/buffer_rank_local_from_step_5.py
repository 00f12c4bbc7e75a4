"""A running mean that ranks share for five steps (they average it), and that each keeps for itself from then on."""

# group: state
# expect: bitwise

from _common import DDP, dist, join_seeded, mlp, nn, start_trace, torch


class Centred(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = mlp(8, 24, 1, nn.ReLU)
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x, shared):
        fresh = x.mean(0)
        if shared:
            dist.all_reduce(fresh)
            fresh /= dist.get_world_size()
        self.mean.lerp_(fresh, 0.2)
        return self.net(x - self.mean)


job = join_seeded()
model = DDP(Centred(), broadcast_buffers=False)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
samples, wanted = torch.randn(96, 8) + 1, torch.randn(96, 1)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(step):
    chosen = torch.randint(len(samples), (4,))
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(samples[chosen], step < 5), wanted[chosen])
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss, mean=model.module.mean)

trace.final(model=model, optimizer=optimizer)
