"""Mean teacher: the teacher's weights and buffers are updated at the top of the step, from where the last one has left."""

# group: state
# expect: bitwise

import copy

from _common import DDP, join_seeded, nn, sharded_loader, start_trace, torch
from torch.utils.data import TensorDataset

job = join_seeded()
net = nn.Sequential(nn.Linear(8, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Dropout(0.2), nn.Linear(24, 4))
teacher = copy.deepcopy(net).requires_grad_(False).eval()
student = DDP(net)
optimizer = torch.optim.SGD(student.parameters(), lr=0.05, momentum=0.9)
data = TensorDataset(torch.randn(96, 8), torch.randint(4, (96,)))
loader = sharded_loader(data, 4)
job.register(student=student, teacher=teacher, optimizer=optimizer)
trace = start_trace(job)


@torch.no_grad()
def update_teacher(decay=0.8):
    wanted = net.state_dict()
    for name, value in teacher.state_dict().items():
        if value.is_floating_point():
            value.copy_(decay * value + (1 - decay) * wanted[name])
        else:
            value.copy_(wanted[name])


@job.step
def train_step(batch):
    inputs, labels = batch
    update_teacher()
    with torch.no_grad():
        soft = teacher(inputs).softmax(1)
    output = student(inputs + 0.1 * torch.randn_like(inputs))
    consistency = nn.functional.mse_loss(output.softmax(1), soft)
    loss = nn.functional.cross_entropy(output, labels) + 3 * consistency
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item(), consistency.item()


for batch in job.batches(loader, steps=12):
    loss, consistency = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss, consistency=consistency)

trace.final(student=student, teacher=teacher, optimizer=optimizer)
