"""The loss is an unregistered module without parameters; its forward moves a threshold that is a plain attribute."""

# group: unregistered state
# expect: bitwise

from _common import DDP, join_seeded, mlp, nn, start_trace, torch


class SelfPaced(nn.Module):
    def __init__(self, threshold, growth):
        super().__init__()
        self.threshold, self.growth = threshold, growth

    def forward(self, output, targets):
        losses = (output - targets).square().mean(1)
        taken = losses.detach() < self.threshold
        self.threshold = self.threshold * self.growth if taken.float().mean() < 0.5 else 0.98 * self.threshold
        return (losses * torch.where(taken, 1.0, 0.1)).mean()


job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
criterion = SelfPaced(threshold=2.0, growth=1.3)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(inputs):
    optimizer.zero_grad()
    loss = criterion(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(torch.randn(6, 8))
    trace.line(f"step {step}", loss=loss, threshold=criterion.threshold)

trace.final(model=model, optimizer=optimizer, threshold=criterion.threshold)
