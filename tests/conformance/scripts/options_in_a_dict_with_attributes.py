"""The options of a run are a dict whose keys are attributes as well, and the step changes two of them."""

# group: state out of sight
# expect: told US1423 "options['noise']"

from _common import DDP, join_seeded, mlp, nn, start_trace, torch


class Options(dict):
    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name, value):
        self[name] = value


options = Options(noise=0.5, decay=0.9, optim=Options(clip=2.0))

job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(inputs):
    noisy = inputs + options.noise * torch.randn_like(inputs)
    options.noise *= options.decay
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(noisy), inputs.sum(1, keepdim=True))
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), options.optim.clip)
    options.optim.clip = 0.9 * options.optim.clip + 0.1 * norm.item()
    optimizer.step()
    return loss.item(), options.optim.clip


for step in job.steps(14):
    loss, clip = train_step(torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss, clip=clip)

trace.final(model=model, optimizer=optimizer)
