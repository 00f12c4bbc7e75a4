"""Stochastic weight averaging from step 5 on with SWALR, and update_bn with a pass over the data at the end.

No rank is lost right after step 5: there the average takes each rank's own statistics for the first time, after the vote, so that no other
rank knows those of the lost one, and the job pauses (US1534).
"""

# group: state
# kills: backward@0:1 forward@2:2 vote agreement@4:1 between@8:2 applied@8:1 vote@9:2 forward@10:0 backward@11:1
# expect: bitwise

from _common import DDP, dist, join_seeded, nn, start_trace, torch
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

job = join_seeded()
net = nn.Sequential(nn.Linear(8, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 1))
averaged = AveragedModel(net)
model = DDP(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=12)
constant = SWALR(optimizer, swa_lr=0.02, anneal_epochs=3)
samples, wanted = torch.randn(96, 8), torch.randn(96, 1)
job.register(model=model, averaged=averaged, optimizer=optimizer, cosine=cosine, constant=constant)
trace = start_trace(job)


@job.step
def train_step(step):
    chosen = torch.randint(len(samples), (4,))
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(samples[chosen]), wanted[chosen])
    loss.backward()
    optimizer.step()
    if step >= 5:
        averaged.update_parameters(net)
        constant.step()
    else:
        cosine.step()
    return loss.item()


@job.section
def finish():
    data = TensorDataset(samples, wanted)
    update_bn(DataLoader(data, batch_size=8, sampler=DistributedSampler(data, shuffle=False)), averaged)
    averaged.eval()
    with torch.no_grad():
        loss = nn.functional.mse_loss(averaged(samples), wanted)
    dist.all_reduce(loss)
    return loss.item() / job.world_size


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss, lr=optimizer.param_groups[0]["lr"])
trace.line("end", loss=finish())

trace.final(model=model, averaged=averaged, optimizer=optimizer, cosine=cosine, constant=constant)
