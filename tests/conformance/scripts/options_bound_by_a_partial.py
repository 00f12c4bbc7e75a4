"""The loss is a functools.partial over a dict of options, and the loop changes the dict, which it also has by name."""

# group: unregistered state
# expect: bitwise

from functools import partial

from _common import DDP, join_seeded, mlp, nn, start_trace, torch


def loss_of(options, output, labels):
    sharp = nn.functional.cross_entropy(output, labels, label_smoothing=options["smoothing"])
    return sharp + options["entropy"] * (output.softmax(1) * output.log_softmax(1)).sum(1).mean()


job = join_seeded()
model = DDP(mlp(8, 24, 4, nn.ReLU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
loss_knobs = {"smoothing": 0.3, "entropy": 0.5}
criterion = partial(loss_of, loss_knobs)


@job.step
def train_step(inputs, labels):
    optimizer.zero_grad()
    loss = criterion(model(inputs), labels)
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(torch.randn(4, 8), torch.randint(4, (4,)))
    loss_knobs["smoothing"] *= 0.8
    if step == 5:
        loss_knobs["entropy"] = 0.0
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
