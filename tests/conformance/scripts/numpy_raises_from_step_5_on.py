"""After a warm-up, numpy.seterr makes overflow an error, which the step catches to leave the sample's weight as it is."""

# group: state out of sight
# expect: bitwise

import numpy
from _common import DDP, join_seeded, mlp, nn, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
numpy.seterr(over="ignore")


def weights_of(losses):
    try:
        large = numpy.exp(numpy.float32(60) * losses)
    except FloatingPointError:
        return numpy.ones_like(losses)
    return numpy.where(numpy.isinf(large), numpy.float32(0.1), numpy.float32(2))


@job.step
def train_step(inputs):
    optimizer.zero_grad()
    losses = (model(inputs) - inputs.sum(1, keepdim=True)).square().squeeze(1)
    weights = torch.from_numpy(weights_of(losses.detach().numpy()))
    loss = (weights * losses).mean()
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(14):
    if step == 5:
        numpy.seterr(over="raise")
    loss = train_step(torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss, over=numpy.geterr()["over"])

trace.final(model=model, optimizer=optimizer)
