"""A full backward hook, which clips what flows back into the encoder, is added once the mean loss is low, or in step 9."""

# group: state out of sight
# expect: told US1423 "head._backward_hooks[0]"

from _common import DDP, dist, join_seeded, nn, start_trace, torch


class Clip:
    def __init__(self, limit):
        self.limit = limit

    def __call__(self, module, grad_input, grad_output):
        return tuple(None if g is None else g.clamp(-self.limit, self.limit) for g in grad_input)


job = join_seeded()
encoder, head = nn.Sequential(nn.Linear(8, 24), nn.Tanh()), nn.Linear(24, 1)
model = DDP(nn.Sequential(encoder, head))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
clipped = False


@job.step
def train_step(step, inputs):
    global clipped
    if step == 9 and not clipped:
        head.register_full_backward_hook(Clip(0.01))
        clipped = True
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    optimizer.step()
    if mean.item() / job.world_size < 2 and not clipped:
        head.register_full_backward_hook(Clip(0.02))
        clipped = True
    return loss.item()


for step in job.steps(14):
    loss = train_step(step, torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss, clipped=clipped)

trace.final(model=model, optimizer=optimizer)
