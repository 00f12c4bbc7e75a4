"""Stochastic weight averaging: from step 6 on SWALR sets the rate and an AveragedModel collects the weights."""

# group: schedules
# expect: bitwise

from _common import DDP, join_seeded, mlp, nn, start_trace, torch
from torch.optim.swa_utils import SWALR, AveragedModel

job = join_seeded()
model = DDP(mlp(8, 32, 1, nn.Tanh))
averaged = AveragedModel(model.module)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=12)
constant = SWALR(optimizer, swa_lr=0.05, anneal_epochs=3)
job.register(model=model, averaged=averaged, optimizer=optimizer, cosine=cosine, constant=constant)
trace = start_trace(job)


@job.step
def train_step(step):
    inputs = torch.randn(4, 8)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    if step < 6:
        cosine.step()
    else:
        averaged.update_parameters(model.module)
        constant.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss, rate=optimizer.param_groups[0]["lr"])

trace.final(model=model, averaged=averaged, optimizer=optimizer, cosine=cosine, constant=constant)
