"""A custom dynamic loss scaler: if gradients overflow in half precision on any rank, the step is skipped and the scale halved."""

# group: unregistered state
# expect: bitwise

from _common import DDP, dist, join_seeded, mlp, nn, start_trace, torch


class LossScaler:
    def __init__(self, scale=2.0**16, window=3):
        self.scale = scale
        self.window = window
        self.good_steps = 0

    def overflows(self, parameters):
        found = torch.tensor(float(any(p.grad.half().isinf().any() for p in parameters)))
        dist.all_reduce(found, op=dist.ReduceOp.MAX)
        return bool(found)

    def update(self, overflow):
        if overflow:
            self.scale, self.good_steps = self.scale / 2, 0
            return
        self.good_steps += 1
        if self.good_steps % self.window == 0:
            self.scale *= 2


job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
scaler = LossScaler()


@job.step
def train_step(inputs):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    (scaler.scale * loss).backward()
    overflow = scaler.overflows(list(model.parameters()))
    if not overflow:
        for p in model.parameters():
            p.grad.copy_(p.grad.half() / scaler.scale)
        optimizer.step()
    scaler.update(overflow)
    return loss.item(), overflow


for step in job.steps(14):
    loss, overflow = train_step(torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss, overflow=overflow, scale=scaler.scale)

trace.final(model=model, optimizer=optimizer, scale=scaler.scale, good_steps=scaler.good_steps)
